import { expect, test } from "vitest";
import { ConfigError, flag, integer, oneOf, port, readConfig, secret, text, url } from "./config.ts";

const spec = {
  RUNMESH_PORT: port({ fallback: 7600 }),
  RUNMESH_DATABASE_URL: url(["postgres", "postgresql"]),
  RUNMESH_SECRET: secret(),
  RUNMESH_BATCH: integer({ min: 1, max: 1000, fallback: 100 }),
  RUNMESH_LOG: oneOf(["info", "debug"], { fallback: "info" }),
  RUNMESH_AUDIT: flag({ fallback: true }),
  RUNMESH_NAME: text({ fallback: "mesh" }),
};

test("settings are read with their types, and an empty one takes its fallback", () => {
  const config = readConfig(spec, {
    RUNMESH_DATABASE_URL: "postgres://localhost/mesh",
    RUNMESH_SECRET: "x".repeat(32),
    RUNMESH_BATCH: "250",
    RUNMESH_AUDIT: "false",
    RUNMESH_NAME: "",
    PATH: "/bin",
  });

  expect(config).toEqual({
    RUNMESH_PORT: 7600,
    RUNMESH_DATABASE_URL: "postgres://localhost/mesh",
    RUNMESH_SECRET: "x".repeat(32),
    RUNMESH_BATCH: 250,
    RUNMESH_LOG: "info",
    RUNMESH_AUDIT: false,
    RUNMESH_NAME: "mesh",
  });
});

test("every fault is reported together, and none shows the value", () => {
  const read = () =>
    readConfig(
      spec,
      {
        RUNMESH_PORT: "70000",
        RUNMESH_DATABASE_URL: "mysql://localhost",
        RUNMESH_SECRET: "hunter2",
        RUNMESH_BATCH: "1e2",
        RUNMESH_LOG: "loud",
        RUNMESH_AUDIT: "perhaps",
        RUNMESH_PROT: "1",
        RUNMESH_KNOWN: "1",
      },
      ["RUNMESH_KNOWN"],
    );

  expect(read).toThrow(ConfigError);
  expect(read).toThrow(
    expect.objectContaining({
      faults: [
        "RUNMESH_PORT must be a whole number from 0 to 65535",
        "RUNMESH_DATABASE_URL must be a URL that begins with postgres:// or postgresql://",
        "RUNMESH_SECRET must be a secret of at least 32 bytes",
        "RUNMESH_BATCH must be a whole number from 1 to 1000",
        "RUNMESH_LOG must be one of info, debug",
        "RUNMESH_AUDIT must be true or false",
        "RUNMESH_PROT is not a setting of this service",
      ],
    }),
  );
});

test("a required setting that is missing is named with what it expects", () => {
  expect(() => readConfig({ RUNMESH_SECRET: secret() }, {})).toThrow(
    "RUNMESH_SECRET is missing: it must be a secret of at least 32 bytes",
  );
});

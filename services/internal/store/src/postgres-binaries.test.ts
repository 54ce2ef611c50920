import { expect, onTestFinished, test, vi } from "vitest";
import { commandAs, findPostgresUser } from "./postgres-binaries.ts";

test("as root PostgreSQL gets another user, also where the PATH leads to nothing", () => {
  vi.spyOn(process, "getuid").mockReturnValue(0);
  vi.stubEnv("PATH", "");
  onTestFinished(() => {
    vi.restoreAllMocks();
    vi.unstubAllEnvs();
  });

  const user = findPostgresUser();

  expect(user?.uid).toBeGreaterThan(0);
  expect(user?.gid).toBeGreaterThan(0);
});

test("a program that nobody else has to run is run as it is", () => {
  const command = commandAs(undefined, "/bin/postgres", ["--version"], { folder: "/", endWithUs: false });

  expect(command).toMatchObject({ file: "/bin/postgres", args: ["--version"] });
});

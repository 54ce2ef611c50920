import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const SETUP = fileURLToPath(new URL("setup.mjs", import.meta.url));
const PACKAGE = { version: "1.0.0", integrity: "sha512-left" };

/** A checkout with one package in its lock, and an npm that only notes what it was asked. */
function givenCheckout(installed: object | undefined) {
  const root = mkdtempSync(join(tmpdir(), "runmesh-setup-"));
  mkdirSync(join(root, "scripts"));
  mkdirSync(join(root, "node_modules"));
  cpSync(SETUP, join(root, "scripts/setup.mjs"));
  writeFileSync(
    join(root, "package-lock.json"),
    JSON.stringify({ packages: { "": {}, "node_modules/left": PACKAGE } }),
  );
  const record = join(root, "node_modules/.package-lock.json");
  if (installed !== undefined) writeFileSync(record, JSON.stringify({ packages: { "node_modules/left": installed } }));
  const npm = join(root, "npm.cjs");
  writeFileSync(npm, `require("node:fs").writeFileSync(${JSON.stringify(join(root, "asked"))}, process.argv[2]);`);
  const asked = () => (existsSync(join(root, "asked")) ? readFileSync(join(root, "asked"), "utf8") : undefined);
  const age = (file: string) => utimesSync(join(root, file), 1, 1);
  const run = (env: Record<string, string> = { npm_execpath: npm }) =>
    spawnSync(process.execPath, [join(root, "scripts/setup.mjs")], { encoding: "utf8", env: { ...env } });
  return { run, asked, age, [Symbol.dispose]: () => rmSync(root, { recursive: true }) };
}

test("packages are installed when there are none", () => {
  using checkout = givenCheckout(undefined);

  const result = checkout.run();

  expect(result.status).toBe(0);
  expect(checkout.asked()).toBe("ci");
});

test("nothing is done and nothing said when they are there", () => {
  using checkout = givenCheckout(PACKAGE);

  const result = checkout.run();

  expect([result.status, result.stdout, result.stderr]).toEqual([0, "", ""]);
  expect(checkout.asked()).toBeUndefined();
});

test("a lock that is newer but asks for the same is fresh", () => {
  using checkout = givenCheckout(PACKAGE);
  checkout.age("node_modules/.package-lock.json");

  expect(checkout.run().status).toBe(0);
  expect(checkout.asked()).toBeUndefined();
});

test("a lock that is newer and asks for another version is installed", () => {
  using checkout = givenCheckout({ ...PACKAGE, version: "0.9.0" });
  checkout.age("node_modules/.package-lock.json");

  expect(checkout.run().status).toBe(0);
  expect(checkout.asked()).toBe("ci");
});

test("a missing npm is named", () => {
  using checkout = givenCheckout(undefined);

  const result = checkout.run({ PATH: "/nowhere" });

  expect(result.status).toBe(1);
  expect(result.stderr).toContain("npm is needed to install");
});

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const bin = fileURLToPath(new URL("../bin/runmesh.mjs", import.meta.url));
const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));

function start(...words: string[]) {
  return spawnSync(process.execPath, [bin, ...words], { encoding: "utf8", timeout: 30_000 });
}

test("the installed command runs without a condition or a build", { timeout: 30_000 }, () => {
  expect(start("--version")).toMatchObject({ status: 0, stdout: `${version}\n` });
});

test("the exit code and the output of the command come through", { timeout: 30_000 }, () => {
  const result = start("run", "show", "abc", "--json");

  expect(result).toMatchObject({ status: 2, stdout: "" });
  expect(JSON.parse(result.stderr)).toMatchObject({ error: { reason: "WRONG_USAGE" } });
});

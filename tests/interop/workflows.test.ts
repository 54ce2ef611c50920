// Needs: actionlint
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ROOT } from "../markdown.ts";

/** What is wrong, a line each; without files, with the workflows of the folder's repository. */
function lint(cwd: string, ...files: string[]): { readonly status: number | null; readonly said: string } {
  const { status, stdout, stderr } = spawnSync("actionlint", ["-oneline", ...files], { cwd, encoding: "utf8" });
  return { status, said: stdout + stderr };
}

test("actionlint finds nothing wrong with the workflows of CI", () => {
  expect(lint(ROOT)).toEqual({ status: 0, said: "" });
});

test("actionlint would find a value that a workflow has not", () => {
  const folder = mkdtempSync(join(tmpdir(), "runmesh-workflow-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const steps = `    steps:\n      - run: echo \${{ github.node }}\n`;
  writeFileSync(join(folder, "ci.yml"), `on: push\njobs:\n  check:\n    runs-on: ubuntu-24.04\n${steps}`);

  const { status, said } = lint(folder, "ci.yml");

  expect(status).toBe(1);
  expect(said).toContain('property "node" is not defined');
});

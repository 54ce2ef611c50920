import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const THING = "runmesh/thing/v1/thing.proto";
const SECONDS = 60_000;

/** A repository of its own with one contract, whose message has the fields given. */
function createRepository() {
  const folder = mkdtempSync(join(tmpdir(), "runmesh-breaking-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const git = (...args: string[]) =>
    execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@t", ...args], { cwd: folder });
  mkdirSync(join(folder, "proto/runmesh/thing/v1"), { recursive: true });
  cpSync(join(ROOT, "buf.yaml"), join(folder, "buf.yaml"));
  git("init", "--quiet");
  return {
    write(...fields: string[]) {
      const message = `message Thing {\n${fields.join("\n")}\n}\n`;
      writeFileSync(join(folder, "proto", THING), `syntax = "proto3";\npackage runmesh.thing.v1;\n${message}`);
    },
    commit() {
      git("add", "--all");
      git("commit", "--quiet", "--message", "A change");
    },
    check() {
      const script = join(ROOT, "scripts/check-breaking.ts");
      const { status, stdout, stderr } = spawnSync(process.execPath, [script, folder], { encoding: "utf8" });
      return { status, said: stdout + stderr };
    },
  };
}

test("contracts may grow", { timeout: SECONDS }, () => {
  const repository = createRepository();
  repository.write("string name = 1;");
  repository.commit();
  repository.write("string name = 1;", "string kind = 2;");

  expect(repository.check()).toEqual({ status: 0, said: "" });
});

test("a field that goes breaks, before it is committed and as the last commit", { timeout: SECONDS }, () => {
  const repository = createRepository();
  repository.write("string name = 1;", "string kind = 2;");
  repository.commit();
  repository.write("string name = 1;");

  const before = repository.check();
  repository.commit();
  const after = repository.check();

  expect(before.status).toBe(1);
  expect(before.said).toContain("break callers of HEAD:");
  expect(after.status).toBe(1);
  expect(after.said).toContain("break callers of HEAD^:");
});

test("where no commit is to compare with, it says so", { timeout: SECONDS }, () => {
  const repository = createRepository();
  repository.write("string name = 1;");

  expect(repository.check()).toEqual({ status: 0, said: "no commit is here to compare the contracts with\n" });
});

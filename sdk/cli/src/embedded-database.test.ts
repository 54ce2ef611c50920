import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { findEmbeddedDatabase } from "./embedded-database.ts";

function folderOf(pid: number, status: string): string {
  const folder = mkdtempSync(join(tmpdir(), "runmesh-cli-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "postgres"));
  writeFileSync(join(folder, "postgres.password"), "se/cret\n");
  const lines = [pid, join(folder, "postgres"), 1_700_000_000, 5_433, "", "127.0.0.1", "  1  2", `${status}   `, ""];
  writeFileSync(join(folder, "postgres", "postmaster.pid"), lines.join("\n"));
  return folder;
}

test("a database that is up in the folder is found with its port and password", () => {
  const url = findEmbeddedDatabase(folderOf(process.pid, "ready"));

  expect(url).toBe("postgresql://postgres:se%2Fcret@127.0.0.1:5433/runmesh");
});

test("one that is starting, or whose process is gone, or an empty folder is none", () => {
  expect(findEmbeddedDatabase(folderOf(process.pid, "starting"))).toBeUndefined();
  expect(findEmbeddedDatabase(folderOf(2 ** 30, "ready"))).toBeUndefined();
  expect(findEmbeddedDatabase(tmpdir())).toBeUndefined();
});

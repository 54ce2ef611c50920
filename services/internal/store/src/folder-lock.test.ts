import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { findFolderHolder, lockFolder } from "./folder-lock.ts";
import { findProcess } from "./process-identity.ts";

const NOBODY = 2_147_483_646;

test("a folder is held once, and the refusal names process and URL", () => {
  const folder = useFolder();
  const lock = lockFolder(folder);
  lock.update({ url: "http://127.0.0.1:7070" });

  expect(() => lockFolder(folder)).toThrow(
    expect.objectContaining({
      reason: "ALREADY_EXISTS",
      message: `Process ${process.pid} already runs on ${folder}; it serves at http://127.0.0.1:7070.`,
    }),
  );
  expect(findFolderHolder(folder)).toEqual({ pid: process.pid, url: "http://127.0.0.1:7070" });
});

test("a released folder can be taken again, also twice released", () => {
  const folder = useFolder();
  const lock = lockFolder(folder);
  lock.release();
  const next = lockFolder(folder);
  lock.release();

  expect(findFolderHolder(folder)).toEqual({ pid: process.pid, url: "" });
  next.release();
  expect(findFolderHolder(folder)).toBeUndefined();
});

test.each([
  ["of a process that is gone", { pid: NOBODY, startedAt: "then", url: "", released: false }],
  ["whose number another process got", { pid: process.pid, startedAt: "before", url: "", released: false }],
])("a lock %s holds nobody", (_whose, content) => {
  const folder = useFolder();
  writeFileSync(join(folder, "lock-7.json"), JSON.stringify(content));

  lockFolder(folder);

  expect(readdirSync(folder)).toEqual(["lock-8.json"]);
});

test("a lock that a power cut left empty holds nobody", () => {
  const folder = useFolder();
  writeFileSync(join(folder, "lock-1.json"), "");

  lockFolder(folder);

  expect(readdirSync(folder)).toEqual(["lock-2.json"]);
});

test("a process is known by number and start, and one that is gone is not found", () => {
  expect(findProcess(process.pid)).toEqual(findProcess(process.pid));
  expect(findProcess(process.pid)?.startedAt).not.toBe(findProcess(1)?.startedAt);
  expect(findProcess(NOBODY)).toBeUndefined();
});

function useFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "runmesh-lock-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

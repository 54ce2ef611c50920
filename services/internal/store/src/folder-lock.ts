import { randomUUID } from "node:crypto";
import { linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { MeshError } from "@runmesh/domain/errors";
import { findProcess } from "./process-identity.ts";

/**
 * One live process per folder. Invariants:
 *
 * 1. Lock files are numbered. The one with the highest number decides; it is never removed, only marked as released
 *    or followed by the next number. So numbers only rise, also across crashes.
 * 2. A file appears complete (a link to a written one), and only one process can make a given number.
 * 3. Whoever made number n and then sees a higher one has lost: it came late to a lock that was followed already.
 */
export interface FolderLock {
  /** Tells others where this process is reached. */
  update(details: { url: string }): void;
  release(): void;
}

interface LockContent {
  readonly pid: number;
  readonly startedAt: string;
  readonly url: string;
  readonly released: boolean;
}

const LOCK_FILE = /^lock-(\d+)\.json$/;
const MAX_ATTEMPTS = 50;

/** Takes the folder, or refuses with ALREADY_EXISTS naming the process and URL that has it. */
export function lockFolder(folder: string): FolderLock {
  mkdirSync(folder, { recursive: true });
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const last = findLast(folder);
    if (last?.content !== undefined && isHeld(last.content)) throw heldBy(folder, last.content);
    const number = (last?.number ?? 0) + 1;
    if (!createLockFile(folder, number)) continue;
    if (findLast(folder)?.number === number) {
      removeBefore(folder, number);
      return heldLock(folder, number);
    }
    rmSync(pathOf(folder, number), { force: true });
  }
  throw new MeshError("UNAVAILABLE", `The lock of ${folder} changed hands too often.`, { retryAfterMs: 1_000 });
}

/** Who has the folder now, if anyone. */
export function findFolderHolder(folder: string): { pid: number; url: string } | undefined {
  const content = findLast(folder)?.content;
  return content !== undefined && isHeld(content) ? { pid: content.pid, url: content.url } : undefined;
}

function heldLock(folder: string, number: number): FolderLock {
  let url = "";
  let released = false;
  return {
    update(details) {
      url = details.url;
      if (!released) replace(folder, number, ownContent({ url }));
    },
    release() {
      if (released) return;
      released = true;
      replace(folder, number, ownContent({ url, released: true }));
    },
  };
}

function isHeld(content: LockContent): boolean {
  return !content.released && findProcess(content.pid)?.startedAt === content.startedAt;
}

function heldBy(folder: string, content: LockContent): MeshError {
  const where = content.url === "" ? "it is still starting" : `it serves at ${content.url}`;
  return new MeshError("ALREADY_EXISTS", `Process ${content.pid} already runs on ${folder}; ${where}.`);
}

function createLockFile(folder: string, number: number): boolean {
  const written = writeAside(folder, ownContent({ url: "" }));
  try {
    linkSync(written, pathOf(folder, number));
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") return false;
    throw error;
  } finally {
    rmSync(written, { force: true });
  }
}

function replace(folder: string, number: number, content: LockContent): void {
  renameSync(writeAside(folder, content), pathOf(folder, number));
}

function writeAside(folder: string, content: LockContent): string {
  const path = join(folder, `lock-${randomUUID()}.tmp`);
  writeFileSync(path, `${JSON.stringify(content)}\n`);
  return path;
}

function ownContent(details: { url: string; released?: boolean }): LockContent {
  const startedAt = findProcess(process.pid)?.startedAt ?? "";
  return { pid: process.pid, startedAt, url: details.url, released: details.released ?? false };
}

function findLast(folder: string): { number: number; content: LockContent | undefined } | undefined {
  const number = lockNumbers(folder).at(-1);
  return number === undefined ? undefined : { number, content: findContent(pathOf(folder, number)) };
}

/** A file that was removed meanwhile, or that a full disk cut off, holds nobody. */
function findContent(path: string): LockContent | undefined {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as LockContent;
  } catch {
    return undefined;
  }
}

function lockNumbers(folder: string): number[] {
  return readdirSync(folder)
    .map((name) => Number(LOCK_FILE.exec(name)?.[1]))
    .filter((number) => !Number.isNaN(number))
    .sort((a, b) => a - b);
}

function removeBefore(folder: string, number: number): void {
  for (const earlier of lockNumbers(folder)) {
    if (earlier < number) rmSync(pathOf(folder, earlier), { force: true });
  }
}

function pathOf(folder: string, number: number): string {
  return join(folder, `lock-${number}.json`);
}

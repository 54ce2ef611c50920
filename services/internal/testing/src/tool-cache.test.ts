import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { provideTools, toolCache } from "./tool-cache.ts";
import { hasTool } from "./tools.ts";

test("a tool that was installed before is found without installing", () => {
  const { empty, cache } = useFolders();
  mkdirSync(join(cache, "grpcurl-v1.9.4"));
  writeFileSync(join(cache, "grpcurl-v1.9.4/grpcurl"), "");
  vi.stubEnv("PATH", empty);

  provideTools(["grpcurl"], { install: false, cache });

  expect(hasTool("grpcurl")).toBe(true);
});

test("a missing tool is installed into a folder of its version, and only where that is asked for", () => {
  const { empty, cache } = useFolders();
  // A stand-in for Go: it writes what it was asked for to where it was told.
  writeFileSync(join(empty, "go"), '#!/bin/sh\nprintf "%s" "$*" >"$GOBIN/grpcurl"\n');
  chmodSync(join(empty, "go"), 0o755);
  vi.stubEnv("PATH", empty);
  vi.spyOn(console, "error").mockImplementation(() => {});

  provideTools(["grpcurl"], { install: false, cache });
  const before = hasTool("grpcurl");
  provideTools(["grpcurl"], { install: true, cache });

  expect(before).toBe(false);
  expect(hasTool("grpcurl")).toBe(true);
});

test("a tool that cannot be had stays missing", () => {
  const { empty, cache } = useFolders();
  vi.stubEnv("PATH", empty);

  provideTools(["grpcurl", "redis-server"], { install: true, cache });

  expect(hasTool("grpcurl")).toBe(false);
  expect(hasTool("redis-server")).toBe(false);
});

test("tools are kept outside any checkout", () => {
  expect(toolCache({ RUNMESH_TOOLS: "/tools" })).toBe("/tools");
  expect(toolCache({ XDG_CACHE_HOME: "/cache" })).toBe("/cache/runmesh/tools");
});

function useFolders(): { empty: string; cache: string } {
  const folders = {
    empty: mkdtempSync(join(tmpdir(), "runmesh-path-")),
    cache: mkdtempSync(join(tmpdir(), "runmesh-")),
  };
  onTestFinished(() => {
    vi.unstubAllEnvs();
    vi.restoreAllMocks();
    for (const folder of Object.values(folders)) rmSync(folder, { recursive: true });
  });
  return folders;
}

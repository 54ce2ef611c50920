import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { adviseOnMissing, findMissingSuites, hasTool, requireTool } from "./tools.ts";

test("a suite whose tool is missing is named with what to install", () => {
  const folder = useFolder();
  writeFileSync(join(folder, "a.test.ts"), "// Needs: grpcurl\n");
  writeFileSync(join(folder, "b.test.ts"), "import { test } from 'vitest';\n");
  vi.stubEnv("PATH", folder);

  const missing = findMissingSuites(folder, "*.test.ts");

  expect(missing).toEqual([{ file: "a.test.ts", tool: "grpcurl" }]);
  expect(adviseOnMissing(missing)).toBe(
    "Suites left out: 1; to run them install grpcurl (go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4)",
  );
  expect(() => requireTool("grpcurl")).toThrow("go install");
});

test("a suite whose tools are there runs, without a word", () => {
  const folder = useFolder();
  writeFileSync(join(folder, "a.test.ts"), "// Needs: grpcurl, curl\n");
  for (const tool of ["grpcurl", "curl"]) {
    writeFileSync(join(folder, tool), "");
    chmodSync(join(folder, tool), 0o755);
  }
  vi.stubEnv("PATH", folder);

  expect(hasTool("grpcurl")).toBe(true);
  expect(findMissingSuites(folder, "*.test.ts")).toEqual([]);
  expect(adviseOnMissing([])).toBe("");
});

test("a tool that nobody described is a fault of the suite", () => {
  const folder = useFolder();
  writeFileSync(join(folder, "a.test.ts"), "// Needs: abacus\n");

  expect(() => findMissingSuites(folder, "*.test.ts")).toThrow("a.test.ts needs abacus");
});

function useFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "runmesh-tools-"));
  onTestFinished(() => {
    vi.unstubAllEnvs();
    rmSync(folder, { recursive: true });
  });
  return folder;
}

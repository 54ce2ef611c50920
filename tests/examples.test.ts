import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "./markdown.ts";

test("no two examples give different tasks one name: their workers may run beside each other", () => {
  const names = globSync("examples/**/*.ts", { cwd: ROOT }).flatMap((file) => {
    const source = readFileSync(join(ROOT, file), "utf8");
    return [...source.matchAll(/defineTask\(\{\s*name: "([^"]+)"/g)].map((match) => match[1]!);
  });

  expect(names).toContain("charge");
  expect(names.length).toBeGreaterThan(5);
  expect(new Set(names).size).toBe(names.length);
});

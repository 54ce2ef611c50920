import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "./markdown.ts";

const rows = readFileSync(join(ROOT, "docs/cases.md"), "utf8")
  .split("\n")
  .filter((line) => line.startsWith("| ") && !line.startsWith("| case") && !line.startsWith("| ---"))
  .map((line) => line.slice(2, -2).split(" | ") as [ids: string, fault: string, name: string, file: string]);

test("every case in the list has its test, by its name", () => {
  const missing = rows.filter(([, , name, file]) => !readFileSync(join(ROOT, file), "utf8").includes(name));

  expect(rows.length).toBeGreaterThan(20);
  expect(missing).toEqual([]);
});

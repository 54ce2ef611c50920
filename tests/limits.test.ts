import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "./markdown.ts";

const ROW = /^\| (.+) \| (.+) \| `([a-z-]+)\/([a-z-]+)` \|$/gm;
const UNITS: Readonly<Record<string, string>> = { KiB: " * 1024", MiB: " * 1024 * 1024", s: "000" };

test("each documented limit is the number that stands where it is held", () => {
  const doc = readFileSync(join(ROOT, "docs/limits.md"), "utf8");
  const rows = [...doc.matchAll(ROW)];
  const wrong = rows.flatMap(([, what, limit, part, file]) => {
    const number = writeAsCode(limit!);
    return readSource(part!, file!).includes(number) ? [] : [`${what}: ${number} is not in ${part}/${file}`];
  });

  expect(rows.length).toBeGreaterThan(25);
  expect(wrong).toEqual([]);
});

/** The first number of a limit as a source has it, without underscores: 256 KiB is `256 * 1024`. */
function writeAsCode(limit: string): string {
  const [, digits, unit = ""] = /(\d+(?:,\d+)*)\b(?: (KiB|MiB|s)\b)?/.exec(limit)!;
  const code = `${digits!.replaceAll(",", "")}${UNITS[unit] ?? ""}`;
  return code.replace(/^1 \* /, "");
}

function readSource(part: string, file: string): string {
  const paths = [`services/internal/${part}/src/${file}.ts`, `services/${part}/src/${file}.ts`];
  const path = paths.map((name) => join(ROOT, name)).find((name) => existsSync(name));
  if (path === undefined) throw new Error(`there is no ${part}/${file}`);
  return readFileSync(path, "utf8").replaceAll(/(?<=\d)_(?=\d)/g, "");
}

import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT, readCodeBlocks } from "./markdown.ts";

test("every piece of code on the page of waits is a part of the example that the tests run", () => {
  const sources = globSync("examples/approval/*.ts", { cwd: ROOT }).map((file) =>
    readFileSync(join(ROOT, file), "utf8"),
  );
  const pieces = readCodeBlocks("docs/waits.md").filter((block) => block.language === "ts");
  const unknown = pieces.filter((piece) => !sources.some((source) => source.includes(piece.text)));

  expect(pieces.length).toBe(6);
  expect(unknown.map((piece) => `docs/waits.md:${piece.line}`)).toEqual([]);
});

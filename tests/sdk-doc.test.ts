import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT, readCodeBlocks } from "./markdown.ts";

test("every piece of code on the author's page is a part of the example that the tests run", () => {
  const sources = globSync("examples/sdk-tour/*.ts", { cwd: ROOT }).map((file) =>
    readFileSync(join(ROOT, file), "utf8"),
  );
  const pieces = readCodeBlocks("docs/sdk.md").filter((block) => block.language === "ts");
  const unknown = pieces.filter((piece) => !sources.some((source) => source.includes(piece.text)));

  expect(pieces.length).toBe(11);
  expect(unknown.map((piece) => `docs/sdk.md:${piece.line}`)).toEqual([]);
});

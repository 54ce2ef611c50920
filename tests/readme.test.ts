import { readFileSync } from "node:fs";
import { join } from "node:path";
import { RUN_MOVES, TASK_MOVES } from "@runmesh/domain/states";
import { expect, test } from "vitest";
import { type CodeBlock, ROOT, readCodeBlocks } from "./markdown.ts";

const blocks = readCodeBlocks("README.md");

test("the README shows the first workflow as it is run, in under 40 lines", () => {
  const source = readFileSync(join(ROOT, "examples/first-workflow/order.ts"), "utf8");

  expect(blocks.filter((block) => block.language === "ts").map((block) => block.text)).toEqual([source]);
  expect(source.trimEnd().split("\n").length).toBeLessThan(40);
});

test("the README's diagrams show every legal move of runs and tasks, and no other", () => {
  const [runs, tasks] = blocks.filter((block) => block.text.startsWith("stateDiagram-v2"));

  expect(readMoves(runs!)).toEqual(listMoves(RUN_MOVES));
  expect(readMoves(tasks!)).toEqual(listMoves(TASK_MOVES));
});

test("the README's npm commands exist", () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
  const commands = blocks
    .filter((block) => block.language === "sh")
    .flatMap((block) => [...block.text.matchAll(/^npm (?:run )?([a-z:]+)/gm)].map((match) => match[1]));

  expect(commands).toEqual(["start", "example", "test", "verify", "bench"]);
  for (const command of commands) expect(scripts).toHaveProperty([command!]);
});

/** Moves as `FROM --> TO: verb`; where a state begins is not a move. */
function readMoves(block: CodeBlock): string[] {
  const lines = block.text.split("\n").map((line) => line.trim());
  return lines.filter((line) => line.includes("-->") && !line.startsWith("[*]")).sort();
}

function listMoves(table: Readonly<Record<string, Readonly<Record<string, string>>>>): string[] {
  return Object.entries(table)
    .flatMap(([from, moves]) => Object.entries(moves).map(([verb, to]) => `${from} --> ${to}: ${verb}`))
    .sort();
}

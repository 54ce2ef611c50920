import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { expect, test } from "vitest";
import { createProgram } from "../sdk/cli/src/program.ts";
import { ROOT } from "./markdown.ts";

const HOST = { terminal: {}, env: {} } as unknown as Parameters<typeof createProgram>[0];
const program = createProgram(HOST, "0.0.0-test", false);

/** What is said before them holds for every command: `--limit` of lists is told there once. */
const [before = "", ...commands] = readFileSync(join(ROOT, "docs/cli.md"), "utf8").split(/^### /m);
/** The page's sections by the first word of their command: `run` has those of each of its commands. */
const sections = Map.groupBy(commands, (section) => /^`runmesh ([a-z-]+)/.exec(section)![1]!);

test("every command and every option is on the command's page, under its own name", () => {
  const missing = program.commands.flatMap((command) => {
    const text = [before, ...(sections.get(command.name()) ?? [])].join("\n");
    const words = new Set(text.match(/--[a-z-]+|[a-z][a-z-]+/g));
    return namesOf(command)
      .filter((name) => !words.has(name))
      .map((name) => `${command.name()}: ${name}`);
  });

  expect(missing).toEqual([]);
});

test("every option of the page's headings is one that its commands have", () => {
  const unknown = [...sections].flatMap(([name, texts]) => {
    const command = program.commands.find((one) => one.name() === name);
    const known = new Set(command && namesOf(command));
    const told = texts.flatMap((text) => text.slice(0, text.indexOf("\n")).match(/--[a-z-]+/g) ?? []);
    return told.filter((option) => !known.has(option)).map((option) => `${name}: ${option}`);
  });

  expect(unknown).toEqual([]);
});

/** What a command is called with: the commands below it, and the long options of all of them. */
function namesOf(command: Command): string[] {
  const below = command.commands.flatMap((one) => [one.name(), ...namesOf(one)]);
  return [...below, ...command.options.flatMap((option) => option.long ?? [])];
}

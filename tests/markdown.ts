import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** A fenced block of code. */
export interface CodeBlock {
  /** What follows the fence, as in "sh". */
  readonly language: string;
  readonly text: string;
  /** Of its first line, counted from 1. */
  readonly line: number;
}

const FENCE = /^```(.*)$/;

/** The code blocks of a Markdown file, in order. */
export function readCodeBlocks(file: string): CodeBlock[] {
  const blocks: CodeBlock[] = [];
  let open: { language: string; lines: string[]; line: number } | undefined;
  for (const [index, line] of readFileSync(new URL(`../${file}`, import.meta.url), "utf8")
    .split("\n")
    .entries()) {
    const language = FENCE.exec(line)?.[1];
    if (language === undefined) open?.lines.push(line);
    else if (open === undefined) open = { language, lines: [], line: index + 2 };
    else {
      blocks.push({ language: open.language, text: open.lines.map((text) => `${text}\n`).join(""), line: open.line });
      open = undefined;
    }
  }
  if (open !== undefined) throw new Error(`${file}:${open.line - 1}: this code block has no end`);
  return blocks;
}

/** The one block that the words appear in. */
export function getCodeBlock(blocks: readonly CodeBlock[], ...words: readonly string[]): CodeBlock {
  const found = blocks.filter((block) => words.every((word) => block.text.includes(word)));
  if (found.length !== 1) throw new Error(`${found.length} code blocks have ${words.join(" and ")}`);
  return found[0]!;
}

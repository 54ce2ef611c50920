import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "./markdown.ts";

const LINK = /\[[^\]]*\]\(([^)\s]+)\)/g;
const FENCED = /^```.*?^```/gms;

test("every link of the documentation leads to a file or heading that is there", () => {
  const broken = listMarkdown().flatMap((file) =>
    readLinks(file)
      .filter((link) => !isThere(file, link))
      .map((link) => `${file}: ${link}`),
  );

  expect(broken).toEqual([]);
});

/** Of this checkout, committed or about to be. */
function listMarkdown(): string[] {
  const args = ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"];
  const files = execFileSync("git", args, { cwd: ROOT, encoding: "utf8" }).trimEnd().split("\n");
  return files.filter((file) => existsSync(join(ROOT, file)));
}

/** Links to other places on the web are left alone: a test must not need them. */
function readLinks(file: string): string[] {
  const text = readFileSync(join(ROOT, file), "utf8").replaceAll(FENCED, "");
  return [...text.matchAll(LINK)].map((match) => match[1]!).filter((link) => !/^[a-z]+:/.test(link));
}

function isThere(file: string, link: string): boolean {
  const [path = "", anchor] = link.split("#");
  const target = path === "" ? file : join(dirname(file), decodeURI(path));
  if (!existsSync(join(ROOT, target))) return false;
  return anchor === undefined || readAnchors(target).includes(anchor);
}

/** Headings as GitHub names them. */
function readAnchors(file: string): string[] {
  const text = readFileSync(join(ROOT, file), "utf8").replaceAll(FENCED, "");
  return [...text.matchAll(/^#+ (.+)$/gm)].map((match) =>
    match[1]!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );
}

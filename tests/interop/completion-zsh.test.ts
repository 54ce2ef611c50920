// Needs: zsh
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { runCli } from "../../sdk/cli/test/run-cli.ts";

const run = promisify(execFile);
const TIMEOUT_MS = 30_000;

/**
 * An interactive zsh on a terminal of its own reads the script as its user's ~/.zshrc would, is typed a line and the
 * tab key, and then, with the cursor put back to the start, prints the line that it has made of it.
 */
const TYPIST = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; bindkey -e; stty columns 400; autoload -Uz compinit; compinit -u -D'
zpty -w shell 'eval "$(cat "'$1'")"'
for line in "\${@:2}"; do zpty -w -n shell "$line"$'\\t\\C-a''print -r -- TYPED '$'\\n'; done
zpty -w shell 'exit'
while zpty -r shell out; do print -rn -- "$out"; done
`;

async function typeAndTab(script: string, lines: readonly string[]): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), "runmesh-zsh-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "completion.zsh");
  writeFileSync(file, script);
  const env = { ...process.env, TERM: "dumb", HOME: folder };
  const options = { cwd: folder, env, timeout: TIMEOUT_MS };
  const { stdout } = await run("zsh", ["-f", "-c", TYPIST, "zsh", file, ...lines], options);
  return stdout.split(/[\r\n]+/).flatMap((line) => /^TYPED (.*?) *$/.exec(line)?.[1] ?? []);
}

test("zsh completes commands, those below them, and options, with options in between", async () => {
  const script = (await runCli(["completion", "zsh"])).stdout.join("\n");

  const made = await typeAndTab(script, [
    "runmesh dead",
    "runmesh run resu",
    "runmesh --json run cancel --wo",
    "runmesh run cancel 7 --ye",
    "runmesh run show --u",
  ]);

  expect(made).toEqual([
    "runmesh dead-letters",
    "runmesh run resume",
    "runmesh --json run cancel --workflow",
    "runmesh run cancel 7 --yes",
    "runmesh run show --url",
  ]);
});

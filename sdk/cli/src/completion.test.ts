import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { runCli } from "../test/run-cli.ts";

/** What bash offers for the last of these words. */
async function complete(...words: string[]): Promise<string[]> {
  const { stdout } = await runCli(["completion", "bash"]);
  const line = words.map((word) => `'${word}'`).join(" ");
  const script = `${stdout.join("\n")}
COMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _runmesh; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", script], { encoding: "utf8" }).trim().split("\n");
}

test("bash completes commands, those below them, and options, with options in between", async () => {
  expect(await complete("runmesh", "dead")).toEqual(["dead-letters"]);
  expect(await complete("runmesh", "run", "re")).toEqual(["resume", "retry", "rerun"]);
  expect(await complete("runmesh", "--json", "run", "cancel", "--wo")).toEqual(["--workflow"]);
  expect(await complete("runmesh", "run", "cancel", "7", "--ye")).toEqual(["--yes"]);
  expect(await complete("runmesh", "run", "show", "--u")).toEqual(["--url"]);
});

test("the scripts of zsh and fish name every command, and a shell that is not known is refused", async () => {
  const zsh = (await runCli(["completion", "zsh"])).stdout;
  const fish = (await runCli(["completion", "fish"])).stdout;
  const other = await runCli(["completion", "tcsh"]);

  expect(zsh[0]).toBe("#compdef runmesh");
  expect(zsh.find((line) => line.includes('"runmesh dead-letters")'))).toContain("compadd -- list replay");
  expect(fish).toContain(
    `complete -c runmesh -n 'test (__runmesh_at) = "runmesh dead-letters"' -a list -d 'list dead tasks of failed runs, newest run first'`,
  );
  expect(other.exitCode).toBe(2);
});

// Needs: fish
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { runCli } from "../../sdk/cli/test/run-cli.ts";

const run = promisify(execFile);
const TIMEOUT_MS = 20_000;

/** What a real fish, which has read the script, offers for a line. */
async function complete(script: string, line: string): Promise<string[]> {
  const program = `${script}\ncomplete -C ${JSON.stringify(line)}`;
  const { stdout } = await run("fish", ["--no-config", "-c", program], { timeout: TIMEOUT_MS });
  return stdout.split("\n").filter((offer) => offer !== "");
}

test("fish completes commands, those below them, and options, with what each does", async () => {
  const script = (await runCli(["completion", "fish"])).stdout.join("\n");

  const names = async (line: string) => (await complete(script, line)).map((offer) => offer.split("\t")[0]);

  expect(await complete(script, "runmesh dead")).toEqual(["dead-letters\tlist and replay dead tasks of failed runs"]);
  expect(await names("runmesh run re")).toEqual(["rerun", "resume", "retry"]);
  expect(await names("runmesh --json run cancel --wo")).toEqual(["--workflow"]);
  expect(await names("runmesh run cancel 7 --ye")).toEqual(["--yes"]);
  expect(await names("runmesh run show --u")).toEqual(["--url"]);
});

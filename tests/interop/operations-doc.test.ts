import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { getCodeBlock, ROOT, readCodeBlocks } from "../markdown.ts";
import { runShellBlock } from "./shell-block.ts";

const blocks = readCodeBlocks("docs/operations.md");
const UP_MS = 40_000;

test("the service of the operator's page serves, is healthy, and stops in order when systemd tells it alone", async () => {
  const unit = readUnit(getCodeBlock(blocks, "[Unit]").text);
  const dataDir = mkdtempSync(join(tmpdir(), "runmesh-unit-"));
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  const [program, ...words] = unit
    .get("ExecStart")!
    .replaceAll(`${unit.get("WorkingDirectory")}/`, ROOT)
    .replaceAll("/var/lib/runmesh", dataDir)
    .replace("--port 7400", "--port 0")
    .split(" ");

  const service = spawn(program!, words, { cwd: ROOT, stdio: ["ignore", "pipe", "ignore"] });
  const ended = once(service, "exit");
  const lines = createInterface({ input: service.stdout });
  const [line] = await once(lines, "line", { signal: AbortSignal.timeout(UP_MS) });
  const url = /http:\S+/.exec(line as string)![0];
  const health = JSON.parse(await runShellBlock(getCodeBlock(blocks, "Health/Check"), { url }));
  service.kill("SIGTERM");
  const [code] = await ended;

  expect(unit.get("StateDirectory")).toBe("runmesh");
  expect(health).toEqual({ status: "SERVING" });
  expect(code).toBe(0);
  expect(existsSync(join(dataDir, "postgres/postmaster.pid"))).toBe(false);
});

function readUnit(text: string): ReadonlyMap<string, string> {
  const entries = text.split("\n").map((line) => /^(\w+)=(.*)$/.exec(line));
  return new Map(entries.flatMap((entry) => (entry === null ? [] : [[entry[1]!, entry[2]!]])));
}

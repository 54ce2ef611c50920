import { readFileSync } from "node:fs";
import { buffer } from "node:stream/consumers";
import { EXIT } from "./exit-codes.ts";
import { runCommand } from "./run-command.ts";
import { listenForStop } from "./stop-signal.ts";
import { createProcessTerminal } from "./terminal.ts";

const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
  version: string;
};

// `runmesh run list | head` closes our output early: that is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit(EXIT.DONE);
});

process.exitCode = await runCommand(
  process.argv.slice(2),
  {
    terminal: createProcessTerminal(),
    env: process.env,
    signal: listenForStop(),
    readStdin: () => buffer(process.stdin),
  },
  version,
);

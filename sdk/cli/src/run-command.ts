import { type Command, CommanderError } from "commander";
import { EXIT, type ExitCode } from "./exit-codes.ts";
import { describeFailure, type Failure, printFailure } from "./failure.ts";
import type { Host } from "./host.ts";
import { ownName } from "./own-name.ts";
import { createProgram, inPlainWords } from "./program.ts";
import { DEFAULT_URL } from "./session.ts";
import { UsageError } from "./usage-error.ts";

/** Runs one command line (without node and script) and answers the exit code; throws nothing. */
export async function runCommand(
  words: readonly string[],
  host: Omit<Host, "end">,
  version: string,
): Promise<ExitCode> {
  let exitCode: ExitCode = EXIT.DONE;
  const end = (code: ExitCode) => {
    exitCode = code;
  };
  // Commander reports wrong usage while it is still reading the options, so this one is looked for beforehand.
  const json = words.includes("--json");
  const program = createProgram({ ...host, end }, version, json);
  try {
    refuseMisplacedVersion(words, program);
    await program.parseAsync([...words], { from: "user" });
    return exitCode;
  } catch (error) {
    if (host.signal.aborted) return EXIT.INTERRUPTED;
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.DONE;
    const { url } = program.opts<{ url?: string }>();
    const failure =
      error instanceof CommanderError
        ? describeWrongUsage(error)
        : describeFailure(error, url ?? (host.env.RUNMESH_URL || DEFAULT_URL), ownName(host.env));
    // For people, commander has written its own message already.
    if (json || !(error instanceof CommanderError)) printFailure(failure, host.terminal, json);
    return failure.exitCode;
  }
}

/** Commander would print our version for it wherever it stands, and do nothing of what the command was to do. */
function refuseMisplacedVersion(words: readonly string[], program: Command): void {
  const at = words.findIndex((word) => word === "--version" || word === "-V" || word === "--");
  if (at === -1 || words[at] === "--") return;
  const isCommand = (word: string) => program.commands.some((command) => command.name() === word);
  if (!words.slice(0, at).some(isCommand)) return;
  throw new UsageError(`${words[at]} says which runmesh this is, and stands before any command`, {
    advice: "A workflow's version is given as in order@2, to `run rerun` as --workflow-version.",
  });
}

function describeWrongUsage(error: CommanderError): Failure {
  return {
    exitCode: EXIT.WRONG_USAGE,
    reason: "WRONG_USAGE",
    message: inPlainWords(error.message),
    violations: [],
    advice: "--help says more.",
    requestId: "",
  };
}

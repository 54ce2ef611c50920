/**
 * `npm start`: brings a whole mesh up, runs one real graph on it, says what happened and what to try, and stays up.
 * `npm start -- --once` ends it with the run's exit code.
 */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { connect, type Mesh } from "@runmesh/client";
import { readCount } from "../sdk/cli/src/arguments.ts";
import { DEFAULT_DATA, DEFAULT_PORT } from "../sdk/cli/src/commands/dev.ts";
import { EXIT, type ExitCode } from "../sdk/cli/src/exit-codes.ts";
import { describeFailure, printFailure } from "../sdk/cli/src/failure.ts";
import { handlersOf, toDefinition } from "../sdk/cli/src/import-definition.ts";
import { createProgress } from "../sdk/cli/src/progress.ts";
import { readPages } from "../sdk/cli/src/read-pages.ts";
import { exitCodeOf, stateOf } from "../sdk/cli/src/run-view.ts";
import { DEFAULT_URL } from "../sdk/cli/src/session.ts";
import { startSimulation } from "../sdk/cli/src/simulation.ts";
import { loadStandalone } from "../sdk/cli/src/standalone-package.ts";
import { listenForStop } from "../sdk/cli/src/stop-signal.ts";
import { createProcessTerminal, type Terminal } from "../sdk/cli/src/terminal.ts";
import { formatDuration } from "../sdk/cli/src/times.ts";
import { untilAborted } from "../sdk/cli/src/until-aborted.ts";
import { UsageError } from "../sdk/cli/src/usage-error.ts";
import { waitForRun } from "../sdk/cli/src/wait-for-run.ts";
import { readWfFormat } from "../sdk/cli/src/wfformat.ts";

const GRAPH = "examples/wfinstances/montage-chameleon-2mass-005d-001.json";
/** A minute of the original takes three seconds: long enough to be seen, short enough to be waited for. */
const SCALE = 0.05;
const SLOTS = 20;
const MAX_ATTEMPTS = 100_000;
const USAGE = `npm start -- [--once] [--port ${DEFAULT_PORT}] [--data ${DEFAULT_DATA}]`;

const terminal = createProcessTerminal();
const signal = listenForStop();

try {
  process.exitCode = await main(readOptions());
} catch (error) {
  if (signal.aborted) process.exitCode = EXIT.INTERRUPTED;
  else {
    const failure = describeFailure(error, DEFAULT_URL);
    printFailure(failure, terminal, false);
    process.exitCode = failure.exitCode;
  }
}

interface Options {
  readonly once: boolean;
  readonly port: number;
  readonly dataDir: string;
}

async function main({ once, port, dataDir }: Options): Promise<ExitCode> {
  const { startStandalone } = await loadStandalone();
  terminal.note("Bringing RunMesh up: the first time it makes a database, which takes some seconds.");
  const startedAt = performance.now();
  const standalone = await startStandalone({ port, dataDir, logLevel: "warn" });
  try {
    terminal.note(`It is up at ${standalone.url} after ${formatDuration(performance.now() - startedAt)}.`);
    const mesh = connect({ url: standalone.url });
    const exitCode = await runGraph(mesh, standalone.url);
    if (once) return exitCode;
    for (const line of describe(standalone.url, dataDir)) terminal.out(line);
    await untilAborted(signal);
    terminal.note("Stopping.");
    return EXIT.DONE;
  } finally {
    await standalone.stop();
  }
}

/** Runs the graph with a worker that sleeps in place of working, and says what happened. */
async function runGraph(mesh: Mesh, url: string): Promise<ExitCode> {
  const imported = readWfFormat(JSON.parse(readFileSync(new URL(`../${GRAPH}`, import.meta.url), "utf8")));
  terminal.note(
    `Running ${imported.name}: ${imported.tasks.length} tasks and ${imported.edgeCount} dependencies of a real ` +
      `astronomy workflow, each task as long as it was measured, times ${SCALE}.`,
  );
  await mesh.workflows.registerWorkflow({ definition: toDefinition(imported) }, { signal });
  await using _worker = await startSimulation({ url, handlers: handlersOf(imported), scale: SCALE, slots: SLOTS });

  const startedAt = performance.now();
  const { runId } = await mesh.runs.startRun({ workflow: imported.name }, { signal });
  const run = await waitForRun(mesh, runId, createProgress(terminal), signal);
  const took = formatDuration(performance.now() - startedAt);

  const attemptCount = await countAttempts(mesh, runId);
  const succeeded = run.tasks?.succeeded ?? 0;
  terminal.out(
    `Run ${runId} ended ${stateOf(run)}: ${succeeded} of ${imported.tasks.length} tasks succeeded ` +
      `in ${attemptCount} attempts and ${took}.`,
  );
  return exitCodeOf(run);
}

async function countAttempts(mesh: Mesh, runId: bigint): Promise<number> {
  const { items } = await readPages(MAX_ATTEMPTS, "", async (pageSize, pageToken) => {
    const page = await mesh.tasks.listAttempts({ runId, pageSize, pageToken }, { signal });
    return { items: page.attempts, nextPageToken: page.nextPageToken };
  });
  return items.length;
}

function describe(url: string, dataDir: string): string[] {
  const at = url === DEFAULT_URL ? "" : ` --url ${url}`;
  return [
    "",
    `RunMesh stays up at ${url} and keeps everything in ${dataDir}.`,
    "",
    "Try, in another terminal:",
    `  npx runmesh run list${at}`,
    `  npx runmesh import wfformat ${GRAPH} --run --simulate 0${at}`,
    `  npx buf curl --http2-prior-knowledge -d '{"pageSize": 3}' ${url}/runmesh.run.v1.RunService/ListRuns`,
    "",
    "Ctrl-C stops it; the folder keeps everything.",
  ];
}

function readOptions(): Options {
  try {
    const { values } = parseArgs({
      options: {
        once: { type: "boolean", default: false },
        port: { type: "string", default: String(DEFAULT_PORT) },
        data: { type: "string", default: DEFAULT_DATA },
      },
    });
    return { once: values.once, port: readCount(0, 65_535)(values.port), dataDir: resolve(values.data) };
  } catch (cause) {
    printUsage(cause, terminal);
    process.exit(EXIT.WRONG_USAGE);
  }
}

function printUsage(cause: unknown, to: Terminal): void {
  const failure = describeFailure(new UsageError((cause as Error).message, { cause, advice: USAGE }), DEFAULT_URL);
  printFailure(failure, to, false);
}

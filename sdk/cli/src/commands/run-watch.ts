import type { Command } from "commander";
import { readCount, readId, readSequence } from "../arguments.ts";
import { eventShape, formatEvent } from "../event-view.ts";
import { addFilterOptions, type FilterOptions, hasFilter } from "../filter-options.ts";
import { followRun } from "../follow-run.ts";
import type { Host } from "../host.ts";
import { createTally, formatTally, takeEvent, takeSnapshot } from "../run-tally.ts";
import { exitCodeOf, formatRun, runShape, stateOf } from "../run-view.ts";
import { openSession } from "../session.ts";
import { UsageError } from "../usage-error.ts";
import { watchAll } from "../watch-all.ts";

interface WatchOptions extends FilterOptions {
  readonly after: bigint;
  readonly all?: boolean;
  readonly limit: number;
}

export function addRunWatch(group: Command, host: Host): void {
  addFilterOptions(
    group
      .command("watch")
      .argument("[run]", "the run's id", readId)
      .description("show where a run stands, then each change until it ends; exit 1 when it is no success")
      .option("--after <sequence>", "resume: only events after this one, and no snapshot", readSequence, 0n)
      .option("--all", "the newest runs, or those of the filter, and each that moves, until Ctrl-C")
      .option("--limit <count>", "with --all: at most so many, the newest", readCount(1, 1_000), 100),
  ).action(async (runId: bigint | undefined, options: WatchOptions, command: Command) => {
    const many = options.all === true || hasFilter(options);
    if ((runId === undefined) !== many) throw new UsageError("give a run, or --all, or a filter");
    const session = openSession(command, host);
    if (runId === undefined) return watchAll(session, options);
    const { printer, progress, signal, mesh } = session;
    const tally = createTally();
    const startedAt = performance.now();

    const run = await followRun(await mesh(), {
      runId,
      signal,
      afterSequence: options.after,
      onSnapshot(snapshot) {
        takeSnapshot(tally, snapshot);
        printer.entry({ snapshot: runShape(snapshot) }, () => `run ${runId} is ${stateOf(snapshot)}`);
      },
      onEvent(event) {
        takeEvent(tally, event);
        progress.clear();
        printer.entry({ event: eventShape(event) }, () => formatEvent(event));
        if (host.terminal.isInteractive) progress.update(formatTally(tally, performance.now() - startedAt));
      },
    });

    progress.clear();
    printer.one({ run: runShape(run) }, () => ["", ...formatRun(run)]);
    host.end(exitCodeOf(run));
  });
}

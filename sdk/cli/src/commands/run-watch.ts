import type { Command } from "commander";
import { readId, readSequence } from "../arguments.ts";
import { eventShape, formatEvent } from "../event-view.ts";
import { followRun } from "../follow-run.ts";
import type { Host } from "../host.ts";
import { createTally, formatTally, takeEvent, takeSnapshot } from "../run-tally.ts";
import { exitCodeOf, formatRun, runShape, stateOf } from "../run-view.ts";
import { openSession } from "../session.ts";

export function addRunWatch(group: Command, host: Host): void {
  group
    .command("watch")
    .argument("<run>", "the run's id", readId)
    .description("show where a run stands, then each change until it ends; exit 1 when it is no success")
    .option("--after <sequence>", "resume: only events after this one, and no snapshot", readSequence, 0n)
    .action(async (runId: bigint, options: { after: bigint }, command: Command) => {
      const { printer, progress, signal, mesh } = openSession(command, host);
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

import type { Command } from "commander";
import { readId } from "../arguments.ts";
import type { Host } from "../host.ts";
import { runShape, stateOf } from "../run-view.ts";
import { openSession } from "../session.ts";

export function addRunCancel(group: Command, host: Host): void {
  group
    .command("cancel")
    .argument("<run>", "the run's id", readId)
    .description("cancel a run: when this returns, nothing of it starts and no result is accepted")
    .option("--comment <text>", "why, for people", "")
    .action(async (runId: bigint, options: { comment: string }, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { runs } = await mesh();

      const { run } = await runs.cancelRun({ runId, comment: options.comment }, call);

      if (run === undefined) throw new Error("CancelRun answered no run");
      printer.one(runShape(run), () => [`Run ${runId} is ${stateOf(run)}`]);
    });
}

import type { Command } from "commander";
import { readId } from "../arguments.ts";
import type { Host } from "../host.ts";
import { formatRun, runShape } from "../run-view.ts";
import { noteFailure, openSession } from "../session.ts";

export function addRunShow(group: Command, host: Host): void {
  group
    .command("show")
    .argument("<run>", "the run's id", readId)
    .description("show a run: state, counts, input, output, failure")
    .action(async (runId: bigint, _options: unknown, command: Command) => {
      const session = openSession(command, host);
      const { printer, call } = session;
      const { runs } = await session.mesh();

      const { run } = await runs.getRun({ runId }, call);

      if (run === undefined) throw new Error("GetRun answered no run");
      printer.one(runShape(run), () => formatRun(run));
      noteFailure(session, run);
    });
}

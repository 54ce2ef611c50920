import { StartRunResponseSchema } from "@runmesh/contracts/run/v1/run_service_pb";
import type { Command } from "commander";
import { readLabel, readWorkflow, type WorkflowTarget } from "../arguments.ts";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { readJsonArgument } from "../read-file.ts";
import { exitCodeOf, formatRun, runShape } from "../run-view.ts";
import { noteFailure, openSession } from "../session.ts";
import { waitForRun } from "../wait-for-run.ts";

interface StartOptions {
  readonly input?: string;
  readonly key?: string;
  readonly label?: Record<string, string>;
  readonly wait?: boolean;
}

export function addRunStart(group: Command, host: Host): void {
  group
    .command("start")
    .argument("<workflow[@version]>", "a registered workflow; without a version the newest", readWorkflow)
    .description("start a run")
    .option("--input <json>", 'the input: JSON, @file, or "-" for standard input')
    .option("--key <key>", "idempotency key: a second start with it answers the first run")
    .option("--label <key=value>", "a label; may be given again", readLabel)
    .option("--wait", "wait for the end, and exit 1 when it is no success")
    .action(async (target: WorkflowTarget, options: StartOptions, command: Command) => {
      const session = openSession(command, host);
      const input = options.input === undefined ? undefined : await readJsonArgument(options.input, host, "--input");

      const mesh = await session.mesh();
      const answer = await mesh.runs.startRun(
        {
          ...target,
          idempotencyKey: options.key ?? "",
          labels: options.label ?? {},
          ...(input !== undefined && { inputPayload: { case: "inputJson", value: input } }),
        },
        session.call,
      );

      const { runId, created } = answer;
      const started = created ? `Started run ${runId}` : `Run ${runId} was started before with this key`;
      if (options.wait !== true) {
        session.printer.one(toShape(StartRunResponseSchema, answer), () => [started]);
        session.printer.note(`Watch it: ${session.next(`run watch ${runId}`)}`);
        return;
      }
      session.printer.note(started);
      const run = await waitForRun(mesh, runId, session.progress, session.signal);
      session.printer.one(runShape(run), () => formatRun(run));
      noteFailure(session, run);
      host.end(exitCodeOf(run));
    });
}

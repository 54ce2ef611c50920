import { randomUUID } from "node:crypto";
import { RerunRunResponseSchema } from "@runmesh/contracts/run/v1/run_service_pb";
import type { Command } from "commander";
import { readCount, readId } from "../arguments.ts";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { openSession } from "../session.ts";
import { UsageError } from "../usage-error.ts";

interface RerunOptions {
  readonly newest?: boolean;
  readonly workflowVersion?: number;
}

export function addRunRerun(group: Command, host: Host): void {
  group
    .command("rerun")
    .argument("<run>", "the run's id", readId)
    .description("start a new run with the input and labels of one, linked to it")
    .option("--newest", "on the newest version of its workflow")
    .option("--workflow-version <number>", "on this version of its workflow", readCount(1, 999_999_999))
    .action(async (runId: bigint, options: RerunOptions, command: Command) => {
      if (options.newest === true && options.workflowVersion !== undefined) {
        throw new UsageError("--newest and --workflow-version exclude each other", { advice: "Give one of the two." });
      }
      const { printer, call, mesh, next } = openSession(command, host);
      const { runs } = await mesh();

      const answer = await runs.rerunRun({ runId, requestId: randomUUID(), ...definitionOf(options) }, call);

      printer.one(toShape(RerunRunResponseSchema, answer), () => [`Started run ${answer.runId}`]);
      printer.note(`Watch it: ${next(`run watch ${answer.runId}`)}`);
    });
}

function definitionOf({ newest, workflowVersion }: RerunOptions) {
  if (newest === true) return { definition: { case: "newestVersion" as const, value: true } };
  if (workflowVersion === undefined) return {};
  return { definition: { case: "workflowVersion" as const, value: workflowVersion } };
}

import type { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import type { Command } from "commander";
import { readLabel, readWorkflow, type WorkflowTarget } from "../arguments.ts";
import type { Host } from "../host.ts";
import { readJsonArgument } from "../read-file.ts";
import { readOverlap } from "../schedule-options.ts";
import { formatSchedule, OVERLAP_NAMES, scheduleShape } from "../schedule-view.ts";
import { openSession } from "../session.ts";

interface PutOptions {
  readonly cron: string;
  readonly workflow: WorkflowTarget;
  readonly timeZone: string;
  readonly input?: string;
  readonly label?: Record<string, string>;
  readonly overlap?: Schedule_Overlap;
  readonly catchUp: string;
  readonly paused?: boolean;
}

export function addSchedulePut(group: Command, host: Host): void {
  group
    .command("put")
    .argument("<name>", "the schedule's name")
    .description("create a schedule, or change the one of that name: what is not given gets its default")
    .requiredOption("--cron <pattern>", 'five or six fields, or a shorthand such as "@hourly"')
    .requiredOption("--workflow <name[@version]>", "what it starts; without a version the newest", readWorkflow)
    .option("--time-zone <zone>", 'an IANA name, as in "Europe/Berlin" (default UTC)', "")
    .option("--input <json>", 'the input of every run: JSON, @file, or "-" for standard input')
    .option("--label <key=value>", "a label of every run; may be given again", readLabel)
    .option("--overlap <policy>", `while a run is active: ${OVERLAP_NAMES.join(", ")} (default skip)`, readOverlap)
    .option("--catch-up <duration>", "how late a tick may still start (default 10m)", "")
    .option("--paused", "create it paused; one that is there stays as it is")
    .action(async (name: string, options: PutOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const input = options.input === undefined ? undefined : await readJsonArgument(options.input, host, "--input");
      const { schedules } = await mesh();

      const { schedule, created } = await schedules.putSchedule(
        {
          schedule: {
            name,
            cron: options.cron,
            ...options.workflow,
            timeZone: options.timeZone,
            labels: options.label ?? {},
            catchUpWindow: options.catchUp,
            paused: options.paused === true,
            ...(options.overlap !== undefined && { overlap: options.overlap }),
            ...(input !== undefined && { inputPayload: { case: "inputJson", value: input } }),
          },
        },
        call,
      );

      if (schedule === undefined) throw new Error("PutSchedule answered no schedule");
      printer.one({ ...scheduleShape(schedule), created }, () => [
        `${created ? "Created" : "Changed"} schedule ${name}`,
        ...formatSchedule(schedule),
      ]);
    });
}

import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { BackfillScheduleResponseSchema } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import type { Command } from "commander";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { readInstant } from "../schedule-options.ts";
import { openSession } from "../session.ts";
import { UsageError } from "../usage-error.ts";

interface BackfillOptions {
  readonly from: Timestamp;
  readonly to: Timestamp;
  readonly atOnce?: boolean;
  readonly inTurn?: boolean;
}

export function addScheduleBackfill(group: Command, host: Host): void {
  group
    .command("backfill")
    .argument("<name>", "the schedule's name")
    .description("start the ticks of a past range that have no run yet, each once")
    .requiredOption("--from <time>", "the first that may start, as in 2026-03-01 or 2026-03-01T06:00Z", readInstant)
    .requiredOption("--to <time>", "where the range ends; excluded, and not in the future", readInstant)
    .option("--at-once", "start all now, at most 1,000 (default where the schedule's overlap is allow)")
    .option("--in-turn", "start each when no run of the schedule is active, at most 100 (default elsewhere)")
    .action(async (name: string, { from, to, atOnce, inTurn }: BackfillOptions, command: Command) => {
      if (atOnce && inTurn) throw new UsageError("--at-once and --in-turn exclude each other");
      const { printer, call, mesh } = openSession(command, host);
      const { schedules } = await mesh();
      const given = inTurn ? Schedule_Overlap.BUFFER_ALL : Schedule_Overlap.UNSPECIFIED;
      const overlap = atOnce ? Schedule_Overlap.ALLOW : given;

      const answer = await schedules.backfillSchedule({ name, from, to, overlap }, call);

      const { tickCount, knownCount } = answer;
      printer.one(toShape(BackfillScheduleResponseSchema, answer), () => [
        `${tickCount} ticks start; ${knownCount} had a run or waited before`,
      ]);
    });
}

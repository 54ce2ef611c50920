import { create } from "@bufbuild/protobuf";
import { EventSchema, EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State, RunSchema } from "@runmesh/contracts/run/v1/run_pb";
import { expect, test } from "vitest";
import { createTally, formatTally, takeEvent, takeSnapshot } from "./run-tally.ts";

test("a tally begins with the snapshot and moves with each event", () => {
  const tally = createTally();
  const tasks = { total: 8, open: 6, succeeded: 1, cancelled: 1 };

  takeSnapshot(tally, create(RunSchema, { state: Run_State.RUNNING, tasks }));
  for (const type of [EventType.TASK_SUCCEEDED, EventType.TASK_RETRYING, EventType.TASK_DEAD, EventType.TASK_SKIPPED]) {
    takeEvent(tally, create(EventSchema, { type }));
  }
  const running = formatTally(tally, 3_450);
  takeEvent(tally, create(EventSchema, { type: EventType.RUN_FAILED }));

  expect(running).toBe(
    "RUNNING  ███████████████░░░░░░░░░  5/8 tasks  1 retried  1 dead  1 skipped  1 cancelled  3.4 s",
  );
  expect(tally.state).toBe("FAILED");
});

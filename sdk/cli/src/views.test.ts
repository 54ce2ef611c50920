import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { AttemptOutcome, EventSchema, EventType } from "@runmesh/contracts/event/v1/event_pb";
import { RunSchema } from "@runmesh/contracts/run/v1/run_pb";
import { TaskSchema } from "@runmesh/contracts/task/v1/task_pb";
import { expect, test } from "vitest";
import { formatEvent } from "./event-view.ts";
import { formatRun } from "./run-view.ts";
import { formatTask } from "./task-view.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const written = '{"id":{"$ref":"#/input/id"}}';

test.each([
  [
    "as a worker gets them, and as they were written",
    written,
    '{"id":7}',
    { params: '{"id":7}', "written as": written },
  ],
  ["as they were written, while a reference may find something else", written, "", { params: written }],
  ["once, where they have no reference", "[1]", "[1]", { params: "[1]" }],
])("a task shows its params %s", (_how, params, resolved, shown) => {
  const task = create(TaskSchema, { id: 1n, paramsJson: bytes(params), resolvedParamsJson: bytes(resolved) });

  const lines = formatTask(task).map((line) => line.split(/ {2,}/));

  expect(Object.fromEntries(lines.filter(([name]) => name === "params" || name === "written as"))).toEqual(shown);
});

test("a run tells whose child and whose rerun it is", () => {
  const child = formatRun(create(RunSchema, { id: 9n, parentRunId: 7n, parentTaskId: 8n }));
  const rerun = formatRun(create(RunSchema, { id: 9n, rerunOf: 7n }));

  expect(child).toContain("child of  run 7, task 8");
  expect(rerun).toContain("rerun of  run 7");
  expect(formatRun(create(RunSchema, { id: 9n })).join("\n")).not.toMatch(/child of|rerun of/);
});

test("a retry tells how the attempt ended and when the next one is due", () => {
  const event = create(EventSchema, {
    sequence: 3n,
    time: timestampFromMs(0),
    type: EventType.TASK_RETRYING,
    taskKey: "charge",
    attempt: 1,
    worker: "w",
    outcome: AttemptOutcome.FAILED,
    errorType: "CardDeclined",
    retryTime: timestampFromMs(1_000),
  });

  expect(formatEvent(event)).toBe(
    "     3  1970-01-01 00:00:00  TASK_RETRYING   charge  attempt 1  w  FAILED: CardDeclined, again at 1970-01-01 00:00:01",
  );
});

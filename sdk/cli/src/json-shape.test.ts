import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Run_State, RunSchema } from "@runmesh/contracts/run/v1/run_pb";
import { ScheduleSchema } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { type Task, TaskSchema } from "@runmesh/contracts/task/v1/task_pb";
import { DefinitionSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { expect, test } from "vitest";
import { toShape } from "./json-shape.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

test("ids are strings, states bare names, payloads the JSON they hold, digit for digit", () => {
  const run = create(RunSchema, {
    id: 9007199254740993n,
    workflow: "order",
    state: Run_State.TIMED_OUT,
    inputJson: bytes('{"n": 9007199254740993, "m": [1e400]}'),
    labels: { inputJson: "a label" },
    createTime: timestampFromMs(0),
  });

  expect(JSON.stringify(toShape(RunSchema, run))).toBe(
    '{"id":"9007199254740993","workflow":"order","workflowVersion":0,"state":"TIMED_OUT",' +
      '"input":{"n":9007199254740993,"m":[1e400]},"labels":{"inputJson":"a label"},"createTime":"1970-01-01T00:00:00Z"}',
  );
});

test("counts, flags and lists are there even when they are empty", () => {
  const task: Task = create(TaskSchema, { id: 5n, error: { type: "Bad" } });

  expect(toShape(TaskSchema, task)).toEqual({
    id: "5",
    requires: [],
    priority: 0,
    state: "UNSPECIFIED",
    pendingCount: 0,
    dependsOn: [],
    attemptCount: 0,
    error: { type: "Bad", retryable: false },
  });
});

test("a payload that is not JSON is shown as text", () => {
  const run = create(RunSchema, { outputJson: bytes("not { json") });

  expect(toShape(RunSchema, run).output).toBe("not { json");
});

test("both forms of a definition's payload come out under one name", () => {
  const definition = create(DefinitionSchema, {
    name: "n",
    tasks: [
      { key: "a", paramsPayload: { case: "paramsJson", value: bytes("[1.0]") } },
      { key: "b", paramsPayload: { case: "params", value: { kind: { case: "stringValue", value: "x" } } } },
    ],
  });

  const { tasks } = toShape(DefinitionSchema, definition) as { tasks: { params: unknown }[] };

  expect(tasks.map((task) => JSON.stringify(task.params))).toEqual(["[1.0]", '"x"']);
});

test("counts of 64 bits are there when they are zero, ids are not", () => {
  const schedule = create(ScheduleSchema, { name: "nightly", ticks: { started: 2n } });

  const shape = toShape(ScheduleSchema, schedule);

  expect(shape.ticks).toEqual({ started: "2", skipped: "0", missed: "0", buffered: 0 });
  expect(shape).not.toHaveProperty("lastRunId");
});

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { NotRunning_NoWorker_Missing as Missing, NotRunningSchema } from "@runmesh/contracts/task/v1/task_pb";
import { expect, test } from "vitest";
import { formatNotRunning } from "./not-running-view.ts";

type Why = NonNullable<MessageInitShape<typeof NotRunningSchema>["why"]>;

const time = timestampFromMs(0);
const say = (why: Why, taskKey = "") => formatNotRunning(create(NotRunningSchema, { why, taskKey }));

test("every reason is a sentence with its facts", () => {
  const use = { workers: 1, slots: 10, slotsUsed: 10, sinceTime: time };
  const holders = [{ runId: 7n, taskId: 8n }];
  const noWorker = { handler: "charge", queue: "night", sinceTime: time };

  expect(say({ case: "waitsForTasks", value: { taskKeys: ["a", "b"], count: 2 } })).toBe("waits for a, b");
  expect(say({ case: "waitsForTasks", value: { taskKeys: ["a", "b", "c", "d", "e", "f"], count: 30 } })).toBe(
    "waits for a, b, c, d, e and 25 more",
  );
  expect(say({ case: "waitsForTime", value: { untilTime: time } })).toBe(
    "waits for its time until 1970-01-01 00:00:00",
  );
  expect(say({ case: "waitsForConcurrencyKey", value: { key: "db", limit: 2, inUse: 2, holders } })).toBe(
    "waits for the key db: 2 of 2 held by run 7",
  );
  expect(say({ case: "waitsForMaxParallel", value: { limit: 4, inUse: 4 } })).toBe(
    "waits for max_parallel: 4 of 4 in use",
  );
  expect(say({ case: "suspended", value: { sinceTime: time, signal: "paid", untilTime: time } })).toBe(
    "suspended since 1970-01-01 00:00:00: waits for the signal paid, at most until 1970-01-01 00:00:00",
  );
  expect(say({ case: "suspended", value: { sinceTime: time, childRunId: 9n } })).toBe(
    "suspended since 1970-01-01 00:00:00: waits for run 9",
  );
  expect(say({ case: "suspended", value: { untilTime: time } })).toBe("sleeps until 1970-01-01 00:00:00");
  expect(say({ case: "paused", value: { sinceTime: time } })).toBe("paused since 1970-01-01 00:00:00");
  expect(say({ case: "noWorker", value: { ...noWorker, missing: Missing.HANDLER } })).toBe(
    "no worker has the handler charge since 1970-01-01 00:00:00",
  );
  expect(say({ case: "noWorker", value: { ...noWorker, missing: Missing.QUEUE } })).toBe(
    "no worker with the handler charge serves the queue night since 1970-01-01 00:00:00",
  );
  expect(say({ case: "noWorker", value: { ...noWorker, missing: Missing.CAPABILITIES, capabilities: ["gpu"] } })).toBe(
    "no worker with the handler charge has gpu since 1970-01-01 00:00:00",
  );
  expect(say({ case: "workersBusy", value: use })).toBe(
    "workers are busy: 10 of 10 slots of 1 worker used since 1970-01-01 00:00:00",
  );
  expect(say({ case: "claimable", value: { ...use, slotsUsed: 3, workers: 2 } })).toBe(
    "about to be taken: 3 of 10 slots of 2 workers used since 1970-01-01 00:00:00",
  );
  expect(say({ case: "waitsForRunLimit", value: { key: "acc", limit: 1, inUse: 1, runIds: [3n], position: 2 } })).toBe(
    "number 2 in the queue of acc: 1 of 1 held by run 3",
  );
});

test("of a run it names the task that is meant, and nothing is said of what runs", () => {
  expect(say({ case: "waitsForMaxParallel", value: { limit: 1, inUse: 1 } }, "ship")).toBe(
    "task ship: waits for max_parallel: 1 of 1 in use",
  );
  expect(formatNotRunning(undefined)).toBe("");
});

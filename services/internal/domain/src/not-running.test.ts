import { expect, test } from "vitest";
import { type RunFacts, type TaskFacts, type WorkerFacts, whyRunNotRunning, whyTaskNotRunning } from "./not-running.ts";

const at = (second: number) => new Date(second * 1_000);
const RUNNING: RunFacts = { isPending: false, isDue: true, dueAt: undefined, pausedAt: undefined, limit: undefined };
const NOBODY: WorkerFacts = {
  withHandler: 0,
  onQueue: 0,
  able: 0,
  slots: 0,
  slotsUsed: 0,
  lacking: [],
  lastSeenAt: undefined,
};

const task = (facts: Partial<TaskFacts>): TaskFacts => ({
  handler: "charge",
  queue: "default",
  standing: { place: "nowhere" },
  pendingCount: 0,
  pendingKeys: [],
  run: RUNNING,
  key: undefined,
  maxParallel: undefined,
  workers: undefined,
  ...facts,
});

const ready = (workers: Partial<WorkerFacts>) =>
  whyTaskNotRunning(task({ standing: { place: "ready", readyAt: at(10) }, workers: { ...NOBODY, ...workers } }));

test("a leased task runs", () => {
  expect(whyTaskNotRunning(task({ standing: { place: "leased" } }))).toBeUndefined();
});

test("a task with open dependencies waits for them, whatever its run does", () => {
  const waiting = { pendingCount: 30, pendingKeys: ["a", "b"] };

  const answers = [RUNNING, { ...RUNNING, isPending: true, dueAt: at(99) }, { ...RUNNING, pausedAt: at(1) }].map(
    (run) => whyTaskNotRunning(task({ ...waiting, run })),
  );

  expect(answers).toEqual(Array(3).fill({ why: "WAITS_FOR_TASKS", taskKeys: ["a", "b"], count: 30 }));
});

test("the first tasks of a run that has not begun wait for what the run waits for", () => {
  const limit = { key: "k", limit: 1, inUse: 1, holders: [7n], position: 3 };
  const early = { ...RUNNING, isPending: true, isDue: false, dueAt: at(99), limit };
  const due = { ...early, isDue: true };

  expect(whyTaskNotRunning(task({ run: early }))).toEqual({ why: "WAITS_FOR_TIME", until: at(99) });
  expect(whyTaskNotRunning(task({ run: due }))).toEqual({ why: "WAITS_FOR_RUN_LIMIT", ...limit });
  expect(whyRunNotRunning(early)).toEqual({ why: "WAITS_FOR_TIME", until: at(99) });
  expect(whyRunNotRunning(due)).toMatchObject({ why: "WAITS_FOR_RUN_LIMIT", position: 3 });
});

test("a task that is due later waits for its time", () => {
  expect(whyTaskNotRunning(task({ standing: { place: "scheduled", dueAt: at(5) } }))).toEqual({
    why: "WAITS_FOR_TIME",
    until: at(5),
  });
});

test("a held task names the limit that holds it, or the pause", () => {
  const held = (heldFor: "pause" | "key" | "max_parallel") =>
    whyTaskNotRunning(
      task({
        standing: { place: "held", heldFor, heldAt: at(3) },
        run: { ...RUNNING, pausedAt: at(2) },
        key: { key: "db", limit: 2, inUse: 2, holders: [1n, 2n] },
        maxParallel: { limit: 4, inUse: 4 },
      }),
    );

  expect(held("key")).toEqual({ why: "WAITS_FOR_CONCURRENCY_KEY", key: "db", limit: 2, inUse: 2, holders: [1n, 2n] });
  expect(held("max_parallel")).toEqual({ why: "WAITS_FOR_MAX_PARALLEL", limit: 4, inUse: 4 });
  expect(held("pause")).toEqual({ why: "PAUSED", since: at(2) });
});

test("a suspended task says until what", () => {
  const standing = { place: "suspended", since: at(1), until: undefined, signal: "paid", childRunId: 0n } as const;

  expect(whyTaskNotRunning(task({ standing }))).toEqual({
    why: "SUSPENDED",
    since: at(1),
    until: undefined,
    signal: "paid",
    childRunId: 0n,
  });
});

test("without an able worker it names what is missing, never that workers are busy", () => {
  const busyElsewhere = { slots: 0, slotsUsed: 0 };

  expect(ready({})).toMatchObject({ why: "NO_WORKER", missing: "HANDLER", handler: "charge", since: at(10) });
  expect(ready({ withHandler: 2, ...busyElsewhere })).toMatchObject({ why: "NO_WORKER", missing: "QUEUE" });
  expect(ready({ withHandler: 2, onQueue: 1, lacking: ["gpu"] })).toMatchObject({
    why: "NO_WORKER",
    missing: "CAPABILITIES",
    capabilities: ["gpu"],
  });
});

test("no worker is there since the task was ready, or since the last one was seen, whichever is later", () => {
  expect(ready({ lastSeenAt: at(4) })).toMatchObject({ since: at(10) });
  expect(ready({ lastSeenAt: at(40) })).toMatchObject({ since: at(40) });
});

test("able workers are busy only when every slot is used", () => {
  const able = { withHandler: 2, onQueue: 2, able: 2, slots: 8 };

  expect(ready({ ...able, slotsUsed: 8 })).toEqual({
    why: "WORKERS_BUSY",
    workers: 2,
    slots: 8,
    slotsUsed: 8,
    since: at(10),
  });
  expect(ready({ ...able, slotsUsed: 7 })).toMatchObject({ why: "CLAIMABLE", slots: 8, slotsUsed: 7 });
});

test("a paused run is paused, a running one leaves it to its tasks", () => {
  expect(whyRunNotRunning({ ...RUNNING, pausedAt: at(2) })).toEqual({ why: "PAUSED", since: at(2) });
  expect(whyRunNotRunning(RUNNING)).toBeUndefined();
});

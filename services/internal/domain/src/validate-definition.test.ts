import { expect, test } from "vitest";
import { ref, refusalOf, task, withTask, withTasks } from "../testing/given-definition.ts";
import type { DefinitionInput, TaskDefinitionInput, When } from "./definition.ts";
import type { Reason } from "./errors.ts";
import { validateDefinition } from "./validate-definition.ts";

test("every default is filled in", () => {
  expect(validateDefinition(withTask({}))).toEqual({
    name: "order",
    output: undefined,
    deadlineMs: 0,
    onFailure: "stop",
    maxParallel: 0,
    concurrency: undefined,
    tasks: [
      {
        key: "a",
        handler: "work",
        dependsOn: [],
        params: undefined,
        retry: {
          maxAttempts: 3,
          maxLost: 20,
          initialMs: 1000,
          multiplier: 2,
          maxMs: 60_000,
          jitter: 0.2,
          nonRetryable: [],
        },
        timeouts: { scheduleToStartMs: 0, startToCloseMs: 0, heartbeatMs: 0 },
        priority: 0,
        queue: "default",
        requires: [],
        concurrency: undefined,
        exclusive: false,
        when: "all_succeeded",
        allowFailure: false,
      },
    ],
  });
});

test("what is given is kept, durations in milliseconds and capabilities sorted without repeats", () => {
  const definition = validateDefinition({
    ...withTask({
      requires: ["region=eu", "gpu", "gpu"],
      retry: { maxAttempts: 0, initialInterval: "2m", multiplier: 1.5, jitter: 0 },
      timeouts: { scheduleToStart: "1h", startToClose: "30s", heartbeat: "0" },
      concurrency: { key: "k", limit: 0 },
      priority: -100,
    }),
    deadline: "1h30m",
    concurrency: { key: '{"$ref":"#/input/id"}', onConflict: "refuse" },
  });

  expect(definition).toMatchObject({
    deadlineMs: 5_400_000,
    concurrency: { limit: 1, onConflict: "refuse" },
    tasks: [
      {
        requires: ["gpu", "region=eu"],
        retry: { maxAttempts: 0, maxLost: 20, initialMs: 120_000, maxMs: 120_000, multiplier: 1.5, jitter: 0 },
        timeouts: { scheduleToStartMs: 3_600_000, startToCloseMs: 30_000, heartbeatMs: 0 },
        concurrency: { key: "k", limit: 1, onConflict: "queue" },
        priority: -100,
      },
    ],
  });
});

test("a task of one attempt is not run again after a loss, unless it is asked for", () => {
  const maxLost = (retry: TaskDefinitionInput["retry"]) =>
    validateDefinition(withTask({ retry })).tasks[0]?.retry.maxLost;

  expect([maxLost({ maxAttempts: 1 }), maxLost({ maxAttempts: 1, maxLost: 5 }), maxLost({ maxAttempts: 2 })]).toEqual([
    0, 5, 20,
  ]);
});

test("params and output are kept byte for byte", () => {
  const params = '{ "__proto__" : [ 1e400 , 9007199254740993 ] }';

  expect(validateDefinition({ ...withTask({ params }), output: ref("#/tasks/a/output") })).toMatchObject({
    output: ref("#/tasks/a/output"),
    tasks: [{ params }],
  });
});

const nested = "[".repeat(101) + "]".repeat(101);
const twice = withTasks(task("a"), task("b", { dependsOn: ["a", "a"] }));

test.each<[string, DefinitionInput, Reason, string]>([
  ["no name", { tasks: [task("a")] }, "INVALID_FIELD", "definition.name"],
  ["NUL in a name", { ...withTask({}), name: "a\0" }, "INVALID_FIELD", "definition.name"],
  ["no tasks", { name: "order" }, "INVALID_FIELD", "definition.tasks"],
  ["a key with a lone surrogate", withTasks(task("\ud800")), "INVALID_FIELD", "definition.tasks[0].key"],
  ["no handler", withTasks({ key: "a" }), "INVALID_FIELD", "definition.tasks[0].handler"],
  ["a long queue", withTask({ queue: "q".repeat(129) }), "INVALID_FIELD", "definition.tasks[0].queue"],
  ["a twin key", withTasks(task("a"), task("a")), "DUPLICATE_KEY", "definition.tasks[1].key"],
  ["an unknown dependency", withTask({ dependsOn: ["b"] }), "UNKNOWN_TASK", "definition.tasks[0].depends_on[0]"],
  ["a dependency on itself", withTask({ dependsOn: ["a"] }), "GRAPH_CYCLE", "definition.tasks[0].depends_on[0]"],
  ["a dependency listed twice", twice, "INVALID_FIELD", "definition.tasks[1].depends_on[1]"],
  ["params that are no JSON", withTask({ params: "{" }), "INVALID_PAYLOAD", "definition.tasks[0].params"],
  ["params nested too deep", withTask({ params: nested }), "INVALID_PAYLOAD", "definition.tasks[0].params"],
  ["params too large", withTask({ params: `"${"é".repeat(131_072)}"` }), "TOO_LARGE", "definition.tasks[0].params"],
  ["a malformed reference", withTask({ params: ref("#/in") }), "INVALID_REFERENCE", "definition.tasks[0].params.v"],
  [
    "an unknown reference",
    withTask({ params: ref("#/tasks/b/output") }),
    "INVALID_REFERENCE",
    "definition.tasks[0].params.v",
  ],
  [
    "its own output",
    withTask({ params: ref("#/tasks/a/output") }),
    "INVALID_REFERENCE",
    "definition.tasks[0].params.v",
  ],
  ["output that is no JSON", { ...withTask({}), output: "nope" }, "INVALID_PAYLOAD", "definition.output"],
  [
    "output of no task",
    { ...withTask({}), output: ref("#/tasks/b/output") },
    "INVALID_REFERENCE",
    "definition.output.v",
  ],
  ["a wrong deadline", { ...withTask({}), deadline: "1w" }, "INVALID_FIELD", "definition.deadline"],
  [
    "a long time-out",
    withTask({ timeouts: { heartbeat: "367d" } }),
    "INVALID_FIELD",
    "definition.tasks[0].timeouts.heartbeat",
  ],
  [
    "too many attempts",
    withTask({ retry: { maxAttempts: 10_001 } }),
    "INVALID_FIELD",
    "definition.tasks[0].retry.max_attempts",
  ],
  [
    "a shrinking delay",
    withTask({ retry: { multiplier: 0.5 } }),
    "INVALID_FIELD",
    "definition.tasks[0].retry.multiplier",
  ],
  [
    "no multiplier",
    withTask({ retry: { multiplier: Number.NaN } }),
    "INVALID_FIELD",
    "definition.tasks[0].retry.multiplier",
  ],
  ["too much jitter", withTask({ retry: { jitter: 1.1 } }), "INVALID_FIELD", "definition.tasks[0].retry.jitter"],
  [
    "a low limit",
    withTask({ retry: { maxInterval: "1ms" } }),
    "INVALID_FIELD",
    "definition.tasks[0].retry.max_interval",
  ],
  [
    "an error type with NUL",
    withTask({ retry: { nonRetryable: ["\0"] } }),
    "INVALID_FIELD",
    "definition.tasks[0].retry.non_retryable[0]",
  ],
  ["a high priority", withTask({ priority: 101 }), "INVALID_FIELD", "definition.tasks[0].priority"],
  ["half a priority", withTask({ priority: 0.5 }), "INVALID_FIELD", "definition.tasks[0].priority"],
  [
    "too many capabilities",
    withTask({ requires: Array(17).fill("gpu") }),
    "INVALID_FIELD",
    "definition.tasks[0].requires",
  ],
  ["a wrong capability", withTask({ requires: ["a b"] }), "INVALID_FIELD", "definition.tasks[0].requires[0]"],
  [
    "a limit too high",
    withTask({ concurrency: { key: "k", limit: 1001 } }),
    "INVALID_FIELD",
    "definition.tasks[0].concurrency.limit",
  ],
  ["no concurrency key", withTask({ concurrency: {} }), "INVALID_FIELD", "definition.tasks[0].concurrency.key"],
  [
    "a run's conflict rule",
    withTask({ concurrency: { key: "k", onConflict: "refuse" } }),
    "INVALID_FIELD",
    "definition.tasks[0].concurrency.on_conflict",
  ],
  [
    "a key by output",
    withTask({ concurrency: { key: ref("#/tasks/b/output") } }),
    "INVALID_REFERENCE",
    "definition.tasks[0].concurrency.key",
  ],
  ["an unknown when", withTask({ when: "always" as When }), "INVALID_FIELD", "definition.tasks[0].when"],
  ["any_failed of nothing", withTask({ when: "any_failed" }), "INVALID_FIELD", "definition.tasks[0].when"],
  ["too parallel", { ...withTask({}), maxParallel: 10_001 }, "INVALID_FIELD", "definition.max_parallel"],
  [
    "10,001 tasks",
    withTasks(...Array.from({ length: 10_001 }, (_, i) => task(`t${i}`))),
    "TOO_LARGE",
    "definition.tasks",
  ],
])("%s is refused with reason and path", (_what, input, reason, field) => {
  const error = refusalOf(input);

  expect({ reason: error.reason, fields: error.violations.map((each) => each.field) }).toEqual({
    reason,
    fields: [field],
  });
});

test("faults are reported together, at most twenty, and the first gives the reason", () => {
  const tasks = Array.from({ length: 30 }, (_, i) =>
    task(`t${i}`, { dependsOn: ["nobody"], priority: i === 0 ? 500 : 0 }),
  );

  const error = refusalOf({ ...withTasks(...tasks), deadline: "soon" });

  expect(error.reason).toBe("INVALID_FIELD");
  expect(error.violations).toHaveLength(20);
  expect(error.violations.slice(0, 3).map((each) => each.field)).toEqual([
    "definition.tasks[0].priority",
    "definition.deadline",
    "definition.tasks[0].depends_on[0]",
  ]);
  expect(error.message).toBe("definition.tasks[0].priority: must be a whole number from -100 to 100 (and 19 more)");
});

test("another root is named where it is asked for", () => {
  expect(() => validateDefinition({ name: "x", tasks: [] }, "request.definition")).toThrow(
    "request.definition.tasks: must hold 1 to 10000 tasks",
  );
});

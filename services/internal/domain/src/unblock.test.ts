import { expect, test } from "vitest";
import type { TaskState } from "./states.ts";
import { type DependencyState, decideWhen } from "./unblock.ts";

const ends = {
  SUCCEEDED: { state: "SUCCEEDED", allowFailure: false },
  ALLOWED: { state: "DEAD", allowFailure: true },
  DEAD: { state: "DEAD", allowFailure: false },
  SKIPPED: { state: "SKIPPED", allowFailure: true },
  CANCELLED: { state: "CANCELLED", allowFailure: true },
} as const satisfies Record<string, DependencyState>;

test.each([
  ["SUCCEEDED", "ready", "ready", "skipped"],
  ["ALLOWED", "ready", "ready", "ready"],
  ["DEAD", "skipped", "ready", "ready"],
  ["SKIPPED", "skipped", "ready", "skipped"],
  ["CANCELLED", "skipped", "ready", "skipped"],
] as const)(
  "a dependency that ended %s: all_succeeded %s, all_done %s, any_failed %s",
  (end, succeeded, done, failed) => {
    expect(decideWhen("all_succeeded", [ends[end]])).toBe(succeeded);
    expect(decideWhen("all_done", [ends[end]])).toBe(done);
    expect(decideWhen("any_failed", [ends[end]])).toBe(failed);
  },
);

test.each<TaskState>(["BLOCKED", "READY", "LEASED", "RETRY_WAIT", "SUSPENDED"])(
  "a dependency in %s is waited for",
  (state) => {
    const open = { state, allowFailure: false };

    expect(decideWhen("all_succeeded", [open, ends.SUCCEEDED])).toBe("wait");
    expect(decideWhen("all_done", [open, ends.DEAD])).toBe("wait");
    expect(decideWhen("any_failed", [open, ends.DEAD])).toBe("wait");
  },
);

test("all_succeeded is decided at the first end that forbids it", () => {
  expect(decideWhen("all_succeeded", [{ state: "LEASED", allowFailure: false }, ends.DEAD])).toBe("skipped");
});

test("any_failed needs one failure among the ends", () => {
  expect(decideWhen("any_failed", [ends.SUCCEEDED, ends.SKIPPED, ends.ALLOWED])).toBe("ready");
  expect(decideWhen("any_failed", [ends.SUCCEEDED, ends.SKIPPED, ends.CANCELLED])).toBe("skipped");
});

test("without dependencies a task is ready", () => {
  expect(decideWhen("all_succeeded", [])).toBe("ready");
});

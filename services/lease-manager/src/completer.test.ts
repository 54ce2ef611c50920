import { setImmediate as turn } from "node:timers/promises";
import { silentLog } from "@runmesh/platform/log";
import type { Completion, CompletionOutcome } from "@runmesh/store/complete-leases";
import { expect, test } from "vitest";
import { Completer } from "./completer.ts";

const completionOf = (taskId: bigint): Completion => ({
  taskId,
  fence: 1n,
  sessionId: 1n,
  output: undefined,
  dependents: [],
});

test("a completion that comes as another ends, and fails at once as on a closed pool, is told so", async () => {
  const first = Promise.withResolvers<CompletionOutcome>();
  const statements = [() => first.promise, () => Promise.reject(new Error("the pool is closed"))];
  const completer = new Completer({
    complete: () => statements.shift()!(),
    log: silentLog,
    onCompleted: () => undefined,
  });

  const accepted = completer.complete(1, completionOf(1n));
  await turn();
  first.resolve({ accepted: new Set([1n]), endedRuns: [], wokenRoutes: [] });
  const failed = completer.complete(1, completionOf(2n));

  expect(await accepted).toBe(true);
  await expect(failed).rejects.toThrow("the pool is closed");
  await turn();
});

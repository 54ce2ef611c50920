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

test("completions of a run wait for its statement under way and go in one, those of others beside it", async () => {
  const taskOf = (run: bigint, ordinal: bigint) => (run << 20n) | ordinal;
  const sent: (readonly bigint[])[] = [];
  const ends: (() => void)[] = [];
  const completer = new Completer({
    complete: async ({ completions }) => {
      const taskIds = completions.map(({ taskId }) => taskId);
      sent.push(taskIds);
      await new Promise<void>((resolve) => ends.push(resolve));
      return { accepted: new Set(taskIds), endedRuns: [], wokenRoutes: [] };
    },
    log: silentLog,
    onCompleted: () => undefined,
  });

  const accepted = [completer.complete(1, completionOf(taskOf(1n, 0n)))];
  await turn();
  accepted.push(completer.complete(1, completionOf(taskOf(1n, 1n))));
  accepted.push(completer.complete(1, completionOf(taskOf(2n, 0n))));
  await turn();
  accepted.push(completer.complete(1, completionOf(taskOf(1n, 2n))));
  await turn();
  expect(sent).toEqual([[taskOf(1n, 0n)], [taskOf(2n, 0n)]]);

  for (let i = 0; i < 3; i++) {
    ends[i]!();
    await turn();
  }
  expect(await Promise.all(accepted)).toEqual([true, true, true, true]);
  expect(sent.slice(2)).toEqual([[taskOf(1n, 1n), taskOf(1n, 2n)]]);
});

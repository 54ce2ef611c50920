import { setImmediate as turn } from "node:timers/promises";
import { silentLog } from "@runmesh/platform/log";
import type { Completion, CompletionOutcome } from "@runmesh/store/complete-leases";
import pg from "pg";
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

const taskOf = (run: bigint, ordinal: bigint) => (run << 20n) | ordinal;

/** Runs that another move holds: a statement that may wait for them does, until they are let go. */
function withHeldRuns(...held: readonly bigint[]) {
  const slow = new Map(held.map((runId) => [runId, Promise.withResolvers<void>()]));
  const statements: { tasks: number; mayWait: boolean }[] = [];
  const completer = new Completer({
    complete: async ({ completions, mayWait }) => {
      statements.push({ tasks: completions.length, mayWait });
      if (mayWait) for (const { taskId } of completions) await slow.get(taskId >> 20n)?.promise;
      const free = completions.filter(({ taskId }) => !slow.has(taskId >> 20n));
      return { accepted: new Set(free.map(({ taskId }) => taskId)), endedRuns: [], wokenRoutes: [] };
    },
    log: silentLog,
    onCompleted: () => undefined,
  });
  const letGo = (runId: bigint) => {
    const { resolve } = slow.get(runId)!;
    slow.delete(runId);
    resolve();
  };
  return { completer, statements, letGo };
}

test("runs that other moves hold, however many, hold up no completion of another run", async () => {
  const held = Array.from({ length: 8 }, (_, i) => BigInt(i + 1));
  const { completer, statements, letGo } = withHeldRuns(...held);
  const waiting: Promise<boolean>[] = [];
  for (const runId of held) {
    waiting.push(completer.complete(1, completionOf(taskOf(runId, 0n))));
    await turn();
  }

  expect(await completer.complete(1, completionOf(taskOf(9n, 0n)))).toBe(true);
  expect(await completer.complete(2, completionOf(taskOf(10n, 0n)))).toBe(true);
  expect(statements.filter(({ mayWait }) => mayWait)).toHaveLength(3);
  for (const runId of held.toReversed()) letGo(runId);

  expect(await Promise.all(waiting)).toEqual(held.map(() => true));
});

test("what comes of a run while it is waited for goes in one statement afterwards", async () => {
  const { completer, statements, letGo } = withHeldRuns(1n);
  const first = completer.complete(1, completionOf(taskOf(1n, 0n)));
  await turn();
  const rest = [1n, 2n, 3n].map((ordinal) => completer.complete(1, completionOf(taskOf(1n, ordinal))));
  await turn();
  letGo(1n);

  expect(await Promise.all([first, ...rest])).toEqual([true, true, true, true]);
  expect(statements).toEqual([
    { tasks: 1, mayWait: false },
    { tasks: 1, mayWait: true },
    { tasks: 3, mayWait: false },
  ]);
});

test("a lock that does not come in time is told to all that wait for it, to be tried again", async () => {
  let statements = 0;
  const completer = new Completer({
    complete: async () => {
      statements++;
      throw Object.assign(new pg.DatabaseError("canceling statement due to lock timeout", 0, "error"), {
        code: "55P03",
      });
    },
    log: silentLog,
    onCompleted: () => undefined,
  });

  const told = [0n, 1n, 2n, 3n].map((ordinal) => completer.complete(1, completionOf(taskOf(1n, ordinal))));

  for (const one of told) await expect(one).rejects.toMatchObject({ reason: "UNAVAILABLE" });
  expect(statements).toBe(1);
});

test("a bad item among others is found by halves, and what comes of its run meanwhile waits for them", async () => {
  const sent: bigint[][] = [];
  const gate = Promise.withResolvers<void>();
  const completer = new Completer({
    complete: async ({ completions }) => {
      const ordinals = completions.map(({ taskId }) => taskId & 0xfffffn);
      sent.push(ordinals);
      if (sent.length === 2) await gate.promise;
      if (ordinals.includes(3n)) throw new Error("a bad item");
      return { accepted: new Set(completions.map(({ taskId }) => taskId)), endedRuns: [], wokenRoutes: [] };
    },
    log: silentLog,
    onCompleted: () => undefined,
  });
  const items = [0n, 1n, 2n, 3n].map((ordinal) => completer.complete(1, completionOf(taskOf(1n, ordinal))));
  const outcomes = Promise.allSettled(items);
  await turn();
  const later = completer.complete(1, completionOf(taskOf(1n, 4n)));
  await turn();
  gate.resolve();

  expect((await outcomes).map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled", "rejected"]);
  expect(await later).toBe(true);
  expect(sent).toEqual([[0n, 1n, 2n, 3n], [0n, 1n], [2n, 3n], [2n], [3n], [4n]]);
});

test("a statement that throws before it is sent leaves its run free for the next", async () => {
  let calls = 0;
  const completer = new Completer({
    complete: ({ completions }) => {
      if (calls++ === 0) throw new Error("thrown at once");
      return Promise.resolve({
        accepted: new Set(completions.map(({ taskId }) => taskId)),
        endedRuns: [],
        wokenRoutes: [],
      });
    },
    log: silentLog,
    onCompleted: () => undefined,
  });

  await expect(completer.complete(1, completionOf(taskOf(1n, 0n)))).rejects.toThrow("thrown at once");
  expect(await completer.complete(1, completionOf(taskOf(1n, 1n)))).toBe(true);
});

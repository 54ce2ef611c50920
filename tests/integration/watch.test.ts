import { type Event, EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State, type RunChange } from "@runmesh/contracts/run/v1/run_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

const CHAIN = { tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }, { key: "c", dependsOn: ["b"] }], output: "7" };
const SEVEN = new TextEncoder().encode("7");

test("a watch begins with a snapshot, tells each change as it happens, and ends with the run", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run(CHAIN);
  const watch = watchRun(mesh, runId);

  const snapshot = await watch.next();
  expect(await worker.complete(await worker.acquireOne())).toBe("accepted");
  const first = await watch.next();
  expect(await worker.drain()).toEqual(["b", "c"]);
  const rest = await collect(watch);

  expect(snapshot.value).toMatchObject({ kind: { case: "snapshot", value: { id: runId, state: 2 } }, sequence: 1n });
  expect(snapshot.value!.run).toBeUndefined();
  expect(first.value).toMatchObject({ kind: { case: "event", value: { taskKey: "a", sequence: 2n } }, sequence: 2n });
  expect(rest.map(({ sequence }) => sequence)).toEqual([3n, 4n, 5n]);
  expect(rest.at(-1)).toMatchObject({
    kind: { case: "event", value: { type: EventType.RUN_SUCCEEDED } },
    run: { state: Run_State.SUCCEEDED, tasks: { succeeded: 3, open: 0 }, outputJson: SEVEN },
  });
});

test("a change is told at once, not when the watch would look again by itself", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: Array.from({ length: 15 }, (_, i) => ({ key: `t${i}` })) });
  const watch = watchRun(mesh, runId);
  await watch.next();
  const tookMs: number[] = [];

  for (const task of await worker.acquire(15)) {
    expect(await worker.complete(task)).toBe("accepted");
    const answeredAt = performance.now();
    await watch.next();
    tookMs.push(performance.now() - answeredAt);
  }

  const median = tookMs.sort((a, b) => a - b)[7]!;
  console.info(`answered to told: median ${median.toFixed(1)} ms, longest ${tookMs.at(-1)!.toFixed(1)} ms`);
  // By itself it looks each half second.
  expect(median).toBeLessThan(200);
});

test("a watch taken up after any sequence tells the rest, without a gap", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run(CHAIN);
  await worker.drain();
  await mesh.ended(runId);
  const all = (await mesh.runs.listEvents({ runId })).events;

  for (let after = 1; after <= 5; after++) {
    const changes = await collect(watchRun(mesh, runId, BigInt(after)));

    expect(changes.map(eventOf)).toEqual(all.slice(after));
  }
  const fromStart = await collect(watchRun(mesh, runId));
  expect(fromStart).toMatchObject([
    {
      kind: { case: "snapshot", value: { state: Run_State.SUCCEEDED } },
      sequence: 5n,
      run: { outputJson: SEVEN },
    },
  ]);
});

test("five watchers that come and go while a run goes on miss nothing between them and nothing each", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const tasks = Array.from({ length: 200 }, (_, i) => ({ key: `t${i}` }));
  const runId = await mesh.given.run({ tasks });

  const watchers = Array.from({ length: 5 }, async (_, i) => {
    const seen: bigint[] = [];
    for (let isOver = false; !isOver; ) {
      const watch = watchRun(mesh, runId, seen.at(-1) ?? 1n);
      for (let n = 0; n < 20 + i && !isOver; n++) {
        const next = await watch.next();
        isOver = next.done === true;
        if (next.value !== undefined && next.value.kind.case === "event") seen.push(next.value.sequence);
      }
      await watch.return(undefined);
    }
    return seen;
  });
  await worker.drain();

  const whole = Array.from({ length: 201 }, (_, i) => BigInt(i + 2));
  for (const seen of await Promise.all(watchers)) expect(seen).toEqual(whole);
});

test("a watch where nothing happens beats every ten seconds", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run();
  const watch = watchRun(mesh, runId);
  await watch.next();

  const startedAt = performance.now();
  const { value: beat } = await watch.next();
  await watch.return(undefined);

  expect(beat).toMatchObject({ kind: { case: "heartbeat" }, sequence: 1n });
  expect(performance.now() - startedAt).toBeGreaterThan(9_000);
  expect(performance.now() - startedAt).toBeLessThan(13_000);
});

test("events are listed in pages without a gap, each told once", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run({ tasks: Array.from({ length: 40 }, (_, i) => ({ key: `t${i}` })) });
  await worker.drain();
  await mesh.ended(runId);

  const all: Event[] = [];
  for (let hasMore = true; hasMore; ) {
    const page = await mesh.runs.listEvents({ runId, pageSize: 7, afterSequence: all.at(-1)?.sequence ?? 0n });
    all.push(...page.events);
    hasMore = page.hasMore;
  }

  expect(all.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 42 }, (_, i) => BigInt(i + 1)));
  expect(all.map(({ id }) => id)).toEqual(all.map(({ sequence }) => `${runId}-${sequence}`));
  expect(all[0]).toMatchObject({ type: EventType.RUN_CREATED, tenant: "default", workflowVersion: 0, runId });
  expect(all.slice(1, -1).every(({ type }) => type === EventType.TASK_SUCCEEDED)).toBe(true);
  expect(new Set(all.slice(1, -1).map(({ taskKey }) => taskKey)).size).toBe(40);
  expect(all[1]).toMatchObject({ attempt: 1, worker: "worker" });
  await expect(mesh.runs.listEvents({ runId, pageSize: 1_001 })).rejects.toMatchObject({ field: "page_size" });
});

test("what leaves by the bus is what the history tells", async () => {
  await using mesh = await startMesh();
  const worker = await mesh.worker();
  const runId = await mesh.given.run(CHAIN);
  await worker.drain();
  await mesh.ended(runId);

  await mesh.standalone.relayed();

  const { left } = await mesh.db.one<{ left: number }>("", "SELECT count(*)::int AS left FROM outbox", []);
  expect(left).toBe(0);
  expect((await mesh.runs.listEvents({ runId })).events).toHaveLength(5);
});

async function collect(watch: AsyncIterable<RunChange>): Promise<RunChange[]> {
  const changes: RunChange[] = [];
  for await (const change of watch) changes.push(change);
  return changes;
}

/** Ends by itself after 30 s. */
async function* watchRun(mesh: TestMesh, runId: bigint, afterSequence = 0n): AsyncGenerator<RunChange, undefined> {
  const signal = AbortSignal.timeout(30_000);
  for await (const { change } of mesh.runs.watchRun({ runId, afterSequence }, { signal })) yield change!;
  return undefined;
}

function eventOf({ kind }: RunChange): Event {
  if (kind.case !== "event") throw new Error(`a ${kind.case} where an event belongs`);
  return kind.value;
}

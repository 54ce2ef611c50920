/** A loop of plain SQL that makes the same row changes as the mesh: no network but the database's, no services. */
import { type Db, openDb } from "@runmesh/store/db";
import { migrate } from "@runmesh/store/migrate";
import { claim, complete, type PlainRun, relay, startRuns, taskOf } from "../plain-sql-steps.ts";
import { serveCalls } from "../serve-calls.ts";

const LOOPS = 3;
const BATCH = 200;
const RELAY_BATCH = 1_000;

let db: Db;
let lastRun = 0n;

interface Graph {
  readonly pending: readonly number[];
  readonly dependents: (ordinal: number) => readonly number[];
}

const SINGLE: Graph = { pending: [0], dependents: () => [] };
const CHAIN: Graph = { pending: [0, 1, 1], dependents: (ordinal) => (ordinal < 2 ? [ordinal + 1] : []) };

function fanOut(width: number): Graph {
  const middle = Array.from({ length: width }, (_, i) => i + 1);
  return {
    pending: [0, ...middle.map(() => 1), width],
    dependents: (ordinal) => (ordinal === 0 ? middle : ordinal <= width ? [width + 1] : []),
  };
}

const newRun = ({ pending }: Graph): PlainRun => ({ id: ++lastRun, pending });

/** Claims and completes until `isOver`; answers nothing, tells the runs that ended. */
async function work(graph: Graph, isOver: () => boolean, onEnded: (runId: bigint) => void): Promise<void> {
  const loop = async () => {
    while (!isOver()) {
      const taskIds = await claim(db, BATCH);
      if (taskIds.length === 0) {
        await new Promise((resolve) => setTimeout(resolve, 1));
        continue;
      }
      const ends = taskIds.map((taskId) => ({
        taskId,
        dependents: graph.dependents(Number(taskId & 0xfffffn)).map((ordinal) => taskOf(taskId >> 20n, ordinal)),
      }));
      for (const runId of await complete(db, ends)) onEnded(runId);
    }
  };
  await Promise.all(Array.from({ length: LOOPS }, loop));
}

async function relayAll(): Promise<void> {
  while ((await relay(db, RELAY_BATCH)) > 0);
}

let submitted = 0;

/** Starts runs so many at a time, each of which is waited for, while the loop works. */
async function drive(graph: Graph, runs: number, inFlight: number): Promise<number[]> {
  const waiting = new Map<bigint, () => void>();
  const times: number[] = [];
  let started = 0;
  let over = false;
  const working = work(
    graph,
    () => over,
    (runId) => waiting.get(runId)?.(),
  );
  const client = async () => {
    while (started < runs) {
      started++;
      const run = newRun(graph);
      const startedAt = performance.now();
      const ended = new Promise<void>((resolve) => waiting.set(run.id, resolve));
      await startRuns(db, [run]);
      await ended;
      waiting.delete(run.id);
      times.push(performance.now() - startedAt);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, client));
  over = true;
  await working;
  await relayAll();
  return times;
}

serveCalls({
  async start(databaseUrl: string) {
    await migrate({ url: databaseUrl });
    db = openDb({ url: databaseUrl, size: 12, purpose: "general", applicationName: "plain-sql" });
  },
  async submit({ count, batch, inFlight }: { count: number; batch: number; inFlight: number }) {
    submitted = count;
    let next = 0;
    const send = async () => {
      while (next < count) {
        const size = Math.min(batch, count - next);
        next += size;
        await startRuns(
          db,
          Array.from({ length: size }, () => newRun(SINGLE)),
        );
      }
    };
    await Promise.all(Array.from({ length: inFlight }, send));
    await relayAll();
  },
  async drain() {
    let ended = 0;
    const relaying = (async () => {
      while (ended < submitted) {
        await relay(db, RELAY_BATCH);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    })();
    await work(
      SINGLE,
      () => ended >= submitted,
      () => ended++,
    );
    await relaying;
    await relayAll();
  },
  async chains({ runs, inFlight }: { runs: number; inFlight: number }) {
    await drive(CHAIN, runs, inFlight);
  },
  fanOut: async (width: number) => (await drive(fanOut(width), 1, 1))[0],
  latency: (count: number) => drive(SINGLE, count, 1),
  stop: () => db.close(),
});

import { setTimeout as delay } from "node:timers/promises";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { type Replica, startReplicas, stumble } from "./cluster.ts";

const RUNS = 60;
const CUSTOMERS = ["a", "b", "c"];
const SHARED = { key: "shared", limit: 3 };
const OF_CUSTOMER = { key: '{"$ref":"#/input/customer"}', limit: 2 };
const MAX_PARALLEL = 2;
const LANE_LIMIT = 2;

/** Three workflows over the same few keys; of each task by ordinal, the key it has. */
const GRAPHS = {
  fan: {
    definition: {
      maxParallel: MAX_PARALLEL,
      tasks: [
        { key: "root", concurrency: SHARED },
        ...["x", "y", "z"].map((key) => ({ key, dependsOn: ["root"], concurrency: OF_CUSTOMER })),
        { key: "join", dependsOn: ["x", "y", "z"], concurrency: SHARED },
      ],
    },
    keys: ["shared", "customer", "customer", "customer", "shared"],
  },
  lane: {
    definition: {
      concurrency: { key: "lane", limit: LANE_LIMIT },
      tasks: [
        { key: "first", concurrency: OF_CUSTOMER },
        { key: "second", dependsOn: ["first"], concurrency: SHARED },
      ],
    },
    keys: ["customer", "shared"],
  },
  single: { definition: { tasks: [{ concurrency: SHARED }] }, keys: ["shared"] },
};
type Kind = keyof typeof GRAPHS;
const KINDS = Object.keys(GRAPHS) as Kind[];
const TASKS = KINDS.reduce((sum, kind) => sum + GRAPHS[kind].keys.length * RUNS, 0);

const LIMITS: Readonly<Record<string, number>> = { shared: 3, a: 2, b: 2, c: 2, lane: LANE_LIMIT };

interface Span {
  readonly key: string;
  readonly from: number;
  readonly to: number;
}

test("under four lease-managers starts and completions race over a few keys, and no limit is passed by", async () => {
  await using mesh = await startMesh();
  const replicas = await startReplicas(mesh, 3);
  const members = [mesh, ...replicas];
  const names = {} as Record<Kind, string>;
  for (const kind of KINDS) names[kind] = (await mesh.given.workflow(GRAPHS[kind].definition)).name;
  const runs = new Map<bigint, { kind: Kind; customer: string }>();
  const over = new AbortController();
  const most = watchSlots(mesh, over.signal);

  const workers = members.flatMap((member) => [work(member, over.signal), work(member, over.signal)]);
  await Promise.all(members.map((member, i) => startSome(member, names, i, runs)));
  for (const runId of runs.keys()) expect((await mesh.ended(runId)).state).toBe(Run_State.SUCCEEDED);
  over.abort();
  const answers = (await Promise.all(workers)).flat();

  const seen = await most;
  expect(Object.keys(seen.used).filter((key) => seen.used[key]! > limitOf(key))).toEqual([]);
  expect(seen.held).toBeGreaterThan(0);
  expect(answers.filter((answer) => answer !== "accepted")).toEqual([]);
  const spans = await readSpans(mesh, runs);
  expect(spans.tasks).toBe(TASKS);
  expect(Object.entries(countAtOnce(spans.all)).filter(([key, n]) => n > limitOf(key))).toEqual([]);
  for (const table of ["slot", "run_slot", "held"]) {
    expect(await mesh.db.rows("", `SELECT * FROM ${table}`, [])).toEqual([]);
  }
  expect(await mesh.db.rows("", "SELECT key, used FROM slot_count WHERE used <> 0", [])).toEqual([]);
  // Whoever locks keys does so in one order.
  const ofDatabase = "SELECT deadlocks::int AS deadlocks FROM pg_stat_database WHERE datname = current_database()";
  expect(await mesh.db.one("", ofDatabase, [])).toEqual({ deadlocks: 0 });
  console.info(`${TASKS} tasks of ${runs.size} runs, ${seen.looks} looks, at most ${seen.held} held`);
  for (const replica of replicas) await replica[Symbol.asyncDispose]();
}, 180_000);

const limitOf = (key: string): number => LIMITS[key.replace(/^[kw]:/, "")] ?? MAX_PARALLEL;

/** Starts its share of the runs, several at once, each workflow in turn. */
async function startSome(
  { runs: client }: Pick<Replica, "runs">,
  names: Record<Kind, string>,
  member: number,
  runs: Map<bigint, { kind: Kind; customer: string }>,
): Promise<void> {
  for (let i = member; i < RUNS; i += 4) {
    const customer = CUSTOMERS[i % CUSTOMERS.length]!;
    const inputPayload = { case: "inputJson" as const, value: Buffer.from(JSON.stringify({ customer })) };
    await Promise.all(
      KINDS.map(async (kind) => {
        await stumble(20);
        const { runId } = await client.startRun({ workflow: names[kind], inputPayload });
        runs.set(runId, { kind, customer });
      }),
    );
  }
}

/** Takes some tasks and completes them side by side, until it is told to stop; says how the completions were answered. */
async function work(member: Pick<Replica, "worker">, signal: AbortSignal): Promise<string[]> {
  const worker = await member.worker();
  const answers: string[] = [];
  while (!signal.aborted) {
    const tasks = await worker.acquire(4, { waitMs: 200 });
    const completed = tasks.map(async (task) => {
      await stumble(10);
      return worker.complete(task);
    });
    answers.push(...(await Promise.all(completed)));
  }
  worker.close();
  return answers;
}

/** The most slots of each key that were ever seen taken, and the most tasks held. */
async function watchSlots(mesh: TestMesh, signal: AbortSignal) {
  const used: Record<string, number> = {};
  let held = 0;
  let looks = 0;
  while (!signal.aborted) {
    const rows = await mesh.db.rows<{ key: string; n: number }>(
      "",
      `SELECT key, count(*)::int AS n FROM slot GROUP BY key
       UNION ALL SELECT 'w:' || key, count(*)::int FROM run_slot WHERE active GROUP BY key
       UNION ALL SELECT 'held', count(*)::int FROM held`,
      [],
    );
    for (const { key, n } of rows) {
      if (key === "held") held = Math.max(held, n);
      else used[key] = Math.max(used[key] ?? 0, n);
    }
    looks++;
    await delay(3);
  }
  return { used, held, looks };
}

/** From when to when each task was leased, under each of its keys: the database's own times. */
async function readSpans(mesh: TestMesh, runs: ReadonlyMap<bigint, { kind: Kind; customer: string }>) {
  const rows = await mesh.db.rows<{ task_id: bigint; from: number; to: number }>(
    "",
    `SELECT task_id, extract(epoch FROM leased_at)::float8 AS from, extract(epoch FROM ended_at)::float8 AS to FROM attempt`,
    [],
  );
  const all = rows.flatMap(({ task_id: taskId, from, to }): Span[] => {
    const runId = taskId >> 20n;
    const { kind, customer } = runs.get(runId)!;
    const key = GRAPHS[kind].keys[Number(taskId & 0xfffffn)]!;
    const span = { key: key === "customer" ? customer : key, from, to };
    return kind === "fan" ? [span, { ...span, key: `r:${runId}` }] : [span];
  });
  return { tasks: rows.length, all };
}

/** The most spans of each key that overlap. */
function countAtOnce(spans: readonly Span[]): Record<string, number> {
  const most: Record<string, number> = {};
  for (const [key, own] of Map.groupBy(spans, (span) => span.key)) {
    const moves = own.flatMap(({ from, to }) => [
      { at: from, by: 1 },
      { at: to, by: -1 },
    ]);
    moves.sort((a, b) => a.at - b.at || a.by - b.by);
    let now = 0;
    for (const { by } of moves) {
      now += by;
      most[key] = Math.max(most[key] ?? 0, now);
    }
  }
  return most;
}

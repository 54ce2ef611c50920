import { randomInt } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import type { LeasedTask } from "@runmesh/contracts/lease/v1/lease_pb";
import { OnConflict } from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { GivenDefinition } from "@runmesh/testing/given";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import type { MeshWorker } from "@runmesh/testing/mesh-worker";
import { reasonName } from "@runmesh/testing/reason-name";
import { expect, test } from "vitest";
import { type Replica, startReplicas, stumble } from "./cluster.ts";
import { listEvents } from "./history.ts";

const BATCHES = 1_000;
const AT_ONCE = 8;
const CUSTOMERS = ["a", "b", "c"];
const OF_CUSTOMER = { key: '{"$ref":"#/input/customer"}', limit: 2 };

/** Workflows over the same few keys; where one has several versions, only its limits changed. */
const VERSIONS: Readonly<Record<string, readonly GivenDefinition[]>> = {
  free: [{ tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }] }],
  parent: [{ tasks: [{ key: "spawn" }] }],
  shared: [4, 2, 3].map(
    (limit): GivenDefinition => ({
      concurrency: { key: "one", limit, onConflict: OnConflict.QUEUE },
      tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }],
    }),
  ),
  keyed: [3, 1].map((limit) => ({
    tasks: [
      { key: "a", concurrency: { key: "t", limit } },
      { key: "b", concurrency: OF_CUSTOMER },
    ],
  })),
  both: [
    {
      concurrency: { key: "one", limit: 3, onConflict: OnConflict.QUEUE },
      maxParallel: 1,
      tasks: [
        { key: "a", concurrency: OF_CUSTOMER },
        { key: "b", concurrency: { key: "t", limit: 3 } },
      ],
    },
  ],
  refusing: [
    {
      concurrency: { key: "two", limit: 2, onConflict: OnConflict.REFUSE },
      tasks: [{ concurrency: { key: "t", limit: 3 } }],
    },
  ],
  pushing: [
    {
      concurrency: { key: "last", limit: 2, onConflict: OnConflict.CANCEL_OLDEST },
      tasks: [{ concurrency: OF_CUSTOMER }],
    },
  ],
};
/** The most that any version lets in; of each run, `max_parallel`. */
const LIMITS: Readonly<Record<string, number>> = {
  ...{ "k:t": 3, "k:a": 2, "k:b": 2, "k:c": 2 },
  ...{ "w:one": 4, "w:two": 2, "w:last": 2 },
};
const MAX_PARALLEL = 1;

/** What a start may be answered that is not started. */
const FAIR_REFUSALS: readonly Reason[] = [Reason.OVERLOADED, Reason.IDEMPOTENCY_MISMATCH];
/** What a worker may be told of a run that is cancelled meanwhile, or of a child that its limit refuses. */
const FAIR_ANSWERS = ["accepted", "RUN_NOT_ACTIVE", "FENCE_STALE", "OVERLOADED"];

type Member = Pick<Replica, "runs" | "worker">;

test("1,000 batches of every kind of start race over a few keys with cancels, pauses and children, and limits hold", async () => {
  await using mesh = await startMesh();
  const replicas = await startReplicas(mesh, 1);
  const members = [mesh, ...replicas];
  const workflows: { workflow: string; version: number }[] = [];
  for (const [kind, versions] of Object.entries(VERSIONS)) {
    for (const definition of versions) {
      const { name, version } = await mesh.given.workflow({ name: `race-${kind}`, ...definition });
      workflows.push({ workflow: name, version });
    }
  }
  const over = new AbortController();
  const seen = watchSlots(mesh, over.signal);
  const runIds = new Set<bigint>();
  const workers = members.flatMap((member) => [work(member, runIds, over.signal), work(member, runIds, over.signal)]);

  const unfair: string[] = [];
  const starting = Array.from({ length: AT_ONCE }, async (_, i) => {
    const member = members[i % members.length]!;
    for (let at = i; at < BATCHES; at += AT_ONCE) unfair.push(...(await startBatch(member, workflows, runIds)));
  });
  await Promise.all(starting);
  const openCount = () => count(mesh, "run WHERE state <= 3");
  await expect.poll(openCount, { timeout: 60_000, interval: 100 }).toBe(0);
  over.abort();
  const answers = (await Promise.all(workers)).flat();

  const most = await seen;
  const limitOf = (key: string) => LIMITS[key] ?? MAX_PARALLEL;
  expect(Object.keys(most).filter((key) => most[key]! > limitOf(key))).toEqual([]);
  expect(Object.keys(LIMITS).filter((key) => most[key] !== limitOf(key))).toEqual([]);
  expect(answers.filter((answer) => !FAIR_ANSWERS.includes(answer))).toEqual([]);
  expect(unfair).toEqual([]);
  expect(await count(mesh, "run")).toBe(runIds.size);
  for (const left of ["slot", "run_slot", "held", "ready", "lease", "slot_count WHERE used <> 0"]) {
    expect({ left, count: await count(mesh, left) }).toEqual({ left, count: 0 });
  }
  for (const runId of [...runIds].filter((_, i) => i % 10 === 0)) await listEvents(mesh, runId);
  expect(await deadlocks(mesh)).toBe(0);
  console.info(`${runIds.size} runs, ${answers.length} answers`);
  for (const replica of replicas) await replica[Symbol.asyncDispose]();
}, 300_000);

const count = async (mesh: TestMesh, what: string) =>
  (await mesh.db.one<{ n: number }>("", `SELECT count(*)::int AS n FROM ${what}`, [])).n;

const deadlocks = async (mesh: TestMesh) =>
  (
    await mesh.db.one<{ n: number }>(
      "",
      "SELECT deadlocks::int AS n FROM pg_stat_database WHERE datname = current_database()",
      [],
    )
  ).n;

/** Starts up to four runs in one call, some of them later or with a key that others have, and cancels or pauses some. */
async function startBatch(
  { runs: client }: Member,
  workflows: readonly { workflow: string; version: number }[],
  runIds: Set<bigint>,
): Promise<string[]> {
  await stumble(10);
  const runs = Array.from({ length: 1 + randomInt(4) }, () => {
    const fate = randomInt(10);
    return {
      ...workflows[randomInt(workflows.length)]!,
      ...givenInput(),
      ...(fate === 0 && { dueTime: timestampFromMs(Date.now() + randomInt(400)) }),
      ...(fate > 6 && { idempotencyKey: `key-${randomInt(400)}` }),
    };
  });
  const unfair: string[] = [];
  for (const { result } of (await client.startRuns({ runs })).results) {
    if (result.case !== "started") {
      if (!FAIR_REFUSALS.includes(result.value!.reason)) unfair.push(reasonName(result.value!.reason));
      continue;
    }
    const { runId, created } = result.value;
    runIds.add(runId);
    if (!created) continue;
    const fate = randomInt(40);
    if (fate < 5) await client.cancelRun({ runId }).catch(expectEnded);
    if (fate < 30) continue;
    await client.pauseRun({ runId }).catch(expectEnded);
    await stumble(30);
    await client.resumeRun({ runId }).catch(expectEnded);
  }
  return unfair;
}

const givenInput = () => {
  const customer = CUSTOMERS[randomInt(CUSTOMERS.length)]!;
  return { inputPayload: { case: "inputJson" as const, value: Buffer.from(JSON.stringify({ customer })) } };
};

/** A run that has not begun cannot be paused, one that has ended neither cancelled nor resumed. */
function expectEnded(error: { reason: string }): void {
  if (error.reason !== "ILLEGAL_MOVE") throw error;
}

/** Takes some tasks and completes them side by side, until it is told to stop; says what it was answered. */
async function work(member: Member, runIds: Set<bigint>, signal: AbortSignal): Promise<string[]> {
  const worker = await member.worker();
  const answers: string[] = [];
  const complete = async (task: LeasedTask) => {
    await stumble(5);
    if (task.workflow === "race-parent") answers.push(await spawn(member, worker, task, runIds));
    answers.push(await worker.complete(task));
  };
  while (!signal.aborted) await Promise.all((await worker.acquire(4, { waitMs: 200 })).map(complete));
  worker.close();
  return answers;
}

/** Starts a child of a kind that has limits. */
async function spawn({ runs }: Member, worker: MeshWorker, task: LeasedTask, runIds: Set<bigint>): Promise<string> {
  const workflow = `race-${["shared", "keyed", "both", "refusing", "pushing"][randomInt(5)]}`;
  const { taskId, fence } = task;
  const call = { ...worker.session, taskId, fence, position: 0, occurrence: 0 };
  try {
    const child = await runs.startChildRun({ ...call, start: { workflow, ...givenInput() } });
    runIds.add(child.runId);
    return "accepted";
  } catch (error) {
    return (error as { reason: string }).reason;
  }
}

/** The most slots of each key that were ever seen taken. */
async function watchSlots(mesh: TestMesh, signal: AbortSignal): Promise<Record<string, number>> {
  const most: Record<string, number> = {};
  while (!signal.aborted) {
    const rows = await mesh.db.rows<{ key: string; n: number }>(
      "",
      `SELECT key, count(*)::int AS n FROM slot GROUP BY key
       UNION ALL SELECT 'w:' || key, count(*)::int FROM run_slot WHERE active GROUP BY key`,
      [],
    );
    for (const { key, n } of rows) most[key] = Math.max(most[key] ?? 0, n);
    await delay(3);
  }
  return most;
}

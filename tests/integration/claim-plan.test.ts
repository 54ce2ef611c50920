import { completeLeases } from "@runmesh/store/complete-leases";
import { completeLimited } from "@runmesh/store/complete-limited";
import type { Db } from "@runmesh/store/db";
import { listSessionLeases, renewLeases } from "@runmesh/store/leases";
import { startupOptions } from "@runmesh/store/pool";
import { claimReady, findAcquired } from "@runmesh/store/ready";
import { releaseLeases } from "@runmesh/store/release-leases";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";

const TABLES = /^(ready|lease|run|task|attempt|slot|slot_count|run_slot)(_p\d+)?$/;

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  readonly "TID Cond"?: string;
  readonly Plans?: readonly PlanNode[];
}

const complete =
  (hasDependents: boolean, mayWait: boolean, taskIds = [1n]) =>
  (db: Db) => {
    const dependents = hasDependents ? [{ taskId: 9n, routeId: 1, rank: 0 }] : [];
    const completions = taskIds.map((taskId) => ({ taskId, fence: 1n, sessionId: 1n, output: undefined, dependents }));
    return completeLeases(db, { tenantId: 1, completions, mayWait });
  };
const completeWithLimits =
  (hasDependents: boolean, sharesLimit: boolean, runLimit: number, hasSlots = true, taskIds = [1n]) =>
  (db: Db) => {
    const limits = { key: "k", slotLimit: 1, runLimit };
    const dependents = hasDependents ? [{ taskId: 9n, routeId: 1, rank: 0, limits }] : [];
    const completion = { fence: 1n, sessionId: 1n, output: undefined, dependents, sharesLimit, hasSlots };
    const deps = { hot: db, definitions: undefined as never };
    const completions = taskIds.map((taskId) => ({ taskId, ...completion }));
    return completeLimited(deps, { tenantId: 1, completions, mayWait: false });
  };
const TWO_OF_A_RUN = [1n, 2n];
const session = { tenantId: 1, sessionId: 1n };

/** Every statement that runs as often as tasks do. */
const STATEMENTS: Readonly<Record<string, (db: Db) => Promise<unknown>>> = {
  claim: (db) => claimReady(db, { ...session, routeIds: [1], limit: 1, leaseMs: 1, acquireId: undefined }),
  "find what was claimed": (db) => findAcquired(db, { ...session, acquireId: "" }),
  complete: complete(false, false),
  "complete, waiting": complete(false, true),
  "complete with dependents": complete(true, false),
  "complete with dependents, waiting": complete(true, true),
  "complete several of a run": complete(false, false, TWO_OF_A_RUN),
  "complete several of a run, waiting": complete(false, true, TWO_OF_A_RUN),
  "complete several of a run with dependents": complete(true, false, TWO_OF_A_RUN),
  "complete under limits": completeWithLimits(false, false, 0),
  "complete under limits with dependents": completeWithLimits(true, false, 0),
  "complete under limits with dependents of two limits": completeWithLimits(true, false, 1),
  "complete under limits of tasks and runs": completeWithLimits(false, true, 0),
  "complete under limits of tasks and runs with dependents": completeWithLimits(true, true, 0),
  "complete under limits of runs": completeWithLimits(false, true, 0, false),
  "complete under limits of runs with dependents": completeWithLimits(true, true, 0, false),
  "complete several of a run under limits": completeWithLimits(true, true, 1, true, TWO_OF_A_RUN),
  renew: (db) => renewLeases(db, { ...session, leases: [], leaseMs: 1 }),
  "list a session's leases": (db) => listSessionLeases(db, { ...session, youngMs: 1 }),
  release: (db) => releaseLeases(db, { ...session, leases: [] }),
};
const NAMES = Object.keys(STATEMENTS);

let mesh: TestMesh;
/** Prepared once, before there was anything: what it keeps must do for ever. */
let kept: pg.Client;
/** Of each state of the tables, the plan of each statement, newly made and kept. */
const states = new Map<string, ReadonlyMap<string, PlanNode>>();

/** Goes through the states that the tables of a mesh go through, and plans each as the hot pool's connections do. */
beforeAll(async () => {
  mesh = await startMesh();
  await mesh.given.run();
  for (const table of ["ready", "run_timer", "run", "task"]) await mesh.db.rows("", `DELETE FROM ${table}`, []);
  kept = await prepare();
  const look = async (state: string) => {
    const fresh = await prepare();
    states.set(`${state}, new connection`, await explain(fresh));
    await fresh.end();
    states.set(`${state}, old connection`, await explain(kept));
  };

  await look("empty, never analyzed");
  await analyze();
  await look("empty");

  const small = await mesh.given.run({ tasks: [{ key: "a" }, { key: "b", dependsOn: ["a"] }] });
  const worker = await mesh.worker();
  await look("small, not analyzed");
  await analyze();
  await look("small");
  await worker.acquire(1);
  await analyze();
  await look("one lease");

  const dependsOn = (i: number) => (i < 2_500 ? {} : { dependsOn: [`t${i - 2_500}`] });
  const large = await mesh.given.run({
    tasks: Array.from({ length: 5_000 }, (_, i) => ({ key: `t${i}`, ...dependsOn(i) })),
  });
  await look("grown, not analyzed");
  await worker.acquire(1_000);
  await analyze();
  await look("large");

  for (const runId of [small, large]) await mesh.runs.cancelRun({ runId });
  await look("emptied, not analyzed");
  await analyze();
  await look("emptied");
});
afterAll(async () => {
  await kept.end();
  await mesh[Symbol.asyncDispose]();
});

test.each(NAMES)("the statement to %s has one plan, whatever the tables hold", (name) => {
  const shapes = [...states].map(([state, plans]) => [state, shapeOf(plans.get(name)!)]);

  expect(states.size).toBe(18);
  expect(Object.fromEntries(shapes)).toEqual(Object.fromEntries(shapes.map(([state]) => [state, shapes[0]![1]])));
});

test.each(NAMES)("the statement to %s reaches every row by a place or an index condition", (name) => {
  const scans = [...states.values()].flatMap((plans) => nodesOf(plans.get(name)!)).filter(isScan);

  expect(scans.length).toBeGreaterThan(0);
  expect(scans.filter((scan) => !isBounded(scan))).toEqual([]);
});

const isScan = (node: PlanNode): boolean => {
  return node["Node Type"].includes("Scan") && TABLES.test(node["Relation Name"] ?? "");
};

const isBounded = (node: PlanNode): boolean => {
  if (node["Node Type"] === "Tid Scan") return node["TID Cond"] !== undefined;
  return node["Node Type"].startsWith("Index") && node["Index Cond"] !== undefined;
};

const nodesOf = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)];

function shapeOf(node: PlanNode, depth = 0): string {
  const on = [node["Relation Name"], node["Index Name"]].filter((name) => name !== undefined).join(" ");
  const line = `${"  ".repeat(depth)}${node["Node Type"]}${on === "" ? "" : ` on ${on}`}`;
  return [line, ...(node.Plans ?? []).map((child) => shapeOf(child, depth + 1))].join("\n");
}

/** A connection of the hot pool, on which each statement is prepared. */
async function prepare(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: mesh.databaseUrl, options: startupOptions("hot") });
  await client.connect();
  for (const [i, name] of NAMES.entries()) await client.query(`PREPARE s${i} AS ${await textOf(STATEMENTS[name]!)}`);
  return client;
}

async function explain(client: pg.Client): Promise<Map<string, PlanNode>> {
  const plans = new Map<string, PlanNode>();
  for (const [i, name] of NAMES.entries()) {
    const parameters = Math.max(
      ...[...(await textOf(STATEMENTS[name]!)).matchAll(/\$(\d+)/g)].map(([, n]) => Number(n)),
    );
    const values = Array.from({ length: parameters }, () => "NULL").join(", ");
    const { rows } = await client.query(`EXPLAIN (FORMAT JSON) EXECUTE s${i} (${values})`);
    plans.set(name, rows[0]["QUERY PLAN"][0].Plan);
  }
  return plans;
}

async function analyze(): Promise<void> {
  await mesh.db.rows("", "VACUUM ANALYZE", []);
}

/** The text that a function of the store sends, taken where it would send it. */
async function textOf(send: (db: Db) => Promise<unknown>): Promise<string> {
  let text = "";
  const take = async (_name: string, statement: string) => {
    text = statement;
    throw new Error("taken");
  };
  const db = { rows: take, one: take, find: take, transaction: (work: (tx: unknown) => unknown) => work(db) };
  await send(db as unknown as Db).catch(() => {});
  return text;
}

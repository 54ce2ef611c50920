import { RunLeft_Cause, type RunsChange } from "@runmesh/contracts/run/v1/run_pb";
import type { Db } from "@runmesh/store/db";
import { listDeadLetterPage } from "@runmesh/store/dead-letters";
import { listRunPage } from "@runmesh/store/run-pages";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";

/** Copies of a run that has ended, with ids that rise from `from`; gone before the doctor comes. */
async function copyRun(mesh: TestMesh, runId: bigint, from: bigint, count: number): Promise<AsyncDisposable> {
  const { columns } = await mesh.db.one<{ columns: string }>(
    "",
    `SELECT string_agg(column_name, ', ') AS columns FROM information_schema.columns
    WHERE table_name = 'run' AND column_name NOT IN ('id', 'idempotency_key')`,
    [],
  );
  const text = `INSERT INTO run (id, ${columns}) SELECT $2::bigint + n, ${columns} FROM run, generate_series(1, $3::int) AS n
    WHERE id = $1`;
  await mesh.db.rows("", text, [runId, from, count]);
  await mesh.db.rows("", "ANALYZE run", []);
  return {
    async [Symbol.asyncDispose]() {
      await mesh.db.rows("", "DELETE FROM run WHERE id > $1 AND id <= $1 + $2::int", [from, count]);
    },
  };
}

async function givenCancelled(mesh: TestMesh, workflow: string, labels: Record<string, string> = {}): Promise<bigint> {
  const { runId } = await mesh.runs.startRun({ workflow, labels });
  await mesh.runs.cancelRun({ runId });
  return runId;
}

test("a watch looks at the newest 20,000 runs, however few of them its filter holds for", async () => {
  await using mesh = await startMesh();
  const { name: workflow } = await mesh.given.workflow();
  const old = await givenCancelled(mesh, workflow, { team: "a" });
  const plain = await givenCancelled(mesh, workflow);
  await using _copies = await copyRun(mesh, plain, 10_000n, 20_000);
  const known = [{ runId: old, sequence: 2n }];

  const told: RunsChange[] = [];
  for await (const { change } of mesh.runs.watchRuns({ filter: { labels: { team: "a" } }, known })) {
    told.push(change!);
    if (change!.kind.case === "left") break;
  }

  expect(told[0]!.kind).toMatchObject({ case: "snapshot", value: { runs: [], complete: true } });
  expect(told[1]!.kind).toMatchObject({ case: "left", value: { runId: old, cause: RunLeft_Cause.NEWER } });
});

test("a page of dead letters looks at a bounded number of them, and the walk skips and repeats none", async () => {
  await using mesh = await startMesh();
  const names = ["a", "b"];
  for (const name of names) await mesh.given.workflow({ name, tasks: [{ retry: { maxAttempts: 1 } }] });
  const runIds: bigint[] = [];
  for (const at of [0, 0, 1, 1, 1, 1, 1, 1, 0, 1]) {
    runIds.push((await mesh.runs.startRun({ workflow: names[at]! })).runId);
  }
  const worker = await mesh.worker();
  for (const task of await worker.acquire(10)) await worker.fail(task);

  const pages: bigint[][] = [];
  for (let beforeId: bigint | undefined = 2n ** 62n; beforeId !== undefined; ) {
    const asked = { tenantId: 1, workflow: "a", errorType: "", beforeId, limit: 2, maxLookedAt: 3 };
    const page = await listDeadLetterPage(mesh.db, asked);
    pages.push(page.rows.map((row) => row.id >> 20n));
    beforeId = page.next;
  }

  expect(pages).toEqual([[runIds[8]], [], [runIds[1]], [runIds[0]]]);
});

test("runs of a workflow that has few are found without a look at those of others", async () => {
  await using mesh = await startMesh();
  const [{ name: rare }, { name: common }] = [await mesh.given.workflow(), await mesh.given.workflow()];
  const wanted = await givenCancelled(mesh, rare);
  await using _copies = await copyRun(mesh, await givenCancelled(mesh, common), 10_000n, 20_000);
  const texts: string[] = [];
  const explaining: Db = Object.assign(Object.create(mesh.db) as Db, {
    async rows<T>(name: string, text: string, params: readonly unknown[]) {
      const plan = await mesh.db.rows<Record<string, string>>("", `EXPLAIN (ANALYZE, TIMING OFF) ${text}`, params);
      texts.push(plan.map((row) => row["QUERY PLAN"]).join("\n"));
      return mesh.db.rows<T>(name, text, params);
    },
    find: <T>(name: string, text: string, params: readonly unknown[]) => mesh.db.find<T>(name, text, params),
  });

  const filter = {
    ...{ states: [], workflow: rare, version: 0, createdAfter: undefined, createdBefore: undefined, labels: {} },
    ...{ parentRunId: 0n, idempotencyKey: "" },
  };
  const page = { tenantId: 1, filter, after: undefined, limit: 100, newestFirst: true };
  const { rows } = await listRunPage(explaining, page);

  expect(rows.map((row) => row.id)).toEqual([wanted]);
  expect(texts).toHaveLength(1);
  expect(texts[0]).not.toContain("Rows Removed");
});

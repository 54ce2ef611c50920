import { ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import type { Db } from "@runmesh/store/db";
import { DefinitionCache } from "@runmesh/store/definition-cache";
import { type TestDatabase, useDatabase } from "@runmesh/testing/database";
import { type Caller, startKeyedMesh } from "@runmesh/testing/keyed-mesh";
import type { MeshWorker } from "@runmesh/testing/mesh-worker";
import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ACROSS_TENANTS, readStatements, type Statement } from "./store-statements.ts";
import { givenValues, type Owned } from "./tenant-values.ts";

/**
 * G9: every exported statement of the store is called by tenant B with what belongs to tenant A. Functions are found on
 * disk, and their arguments are made from the names that they read (tenant-values.ts), so a new one is tested as it is
 * written. Each call is rolled back.
 */

let database: TestDatabase;
let statements: Statement[];
let cache: DefinitionCache;
/** What tenant A has: every call is rolled back, so it is the same before each. */
let before: string;
const owned: Owned[] = [];
const A = 2;
const B = 3;

beforeAll(async () => {
  statements = await readStatements();
  database = await useDatabase({ size: 2 });
  await using mesh = await startKeyedMesh({ databaseUrl: database.url });
  const a = await mesh.tenant("a");
  // It has nothing of its own, so that whatever comes back to it is another's.
  await mesh.admin.tenants.createTenant({ name: "b" });
  await mesh.admin.tenants.setQuota({ tenant: "a", quota: { requestsPerSecond: 5_000 } });
  const worker = await mesh.worker(a, { name: "a-worker", handlers: ["a-work"], leaseMs: 600_000 });
  await fillTenant(a, worker);
  owned.push(...(await readOwned()));
  cache = new DefinitionCache(database.db, () => {});
  before = await snapshot(database.db, A);
});
afterAll(() => database.close());

/** Runs in every state, with tasks in every place. */
async function fillTenant(a: Caller, worker: MeshWorker): Promise<void> {
  const { name: workflow } = await a.given.workflow({ name: "a-workflow", tasks: [{ handler: "a-none" }] });
  await a.client(ScheduleService).putSchedule({ schedule: { name: "a-schedule", workflow, cron: "0 0 1 1 *" } });
  const start = { labels: { owner: "a" }, input: '{"owner":"a"}' };

  await a.given.run({ tasks: [{ handler: "a-work" }, { handler: "a-none", dependsOn: ["task-0"] }] }, start);
  const held = await worker.acquireOne();
  await worker.renew([{ taskId: held.taskId, fence: held.fence, started: true, progressJson: Buffer.from('"a"') }]);

  await a.given.run({ tasks: [{ handler: "a-work", retry: { maxAttempts: 1 } }] }, start);
  await worker.fail(await worker.acquireOne());
  await a.given.run({ tasks: [{ handler: "a-work" }] }, start);
  await worker.complete(await worker.acquireOne(), '"a"');
  const paused = await a.given.run({ tasks: [{ handler: "a-none" }, { handler: "a-none" }] }, start);
  await a.runs.pauseRun({ runId: paused });
  const limited = { handler: "a-none", concurrency: { key: "one", limit: 1 } };
  await a.given.run({ tasks: [limited, limited], deadline: "1h", concurrency: { key: "run", limit: 1 } }, start);
  await a.runs.startRun({ workflow, labels: start.labels });
}

/** One set of ids for each run that tenant A has. */
async function readOwned(): Promise<Owned[]> {
  return database.db.rows<Owned>(
    "",
    `SELECT run.id AS "runId", run.definition_id AS "definitionId", run.workflow_id AS "workflowId", workflow.name AS workflow,
       run.state AS "runState", coalesce(lease.task_id, run.id << 20) AS "taskId", coalesce(lease.fence, attempt.fence, 1) AS fence,
       session.id AS "sessionId", session.token_hash AS "tokenHash", session.epoch, route.id AS "routeId",
       definition.content_hash AS "contentHash", key.id AS "keyId", key.name AS "keyName", secret.hash AS "keyHash",
       schedule.id AS "scheduleId", start_key.digest
     FROM run
     JOIN workflow ON workflow.tenant_id = run.tenant_id AND workflow.id = run.workflow_id
     JOIN definition ON definition.tenant_id = run.tenant_id AND definition.id = run.definition_id
     JOIN start_key ON start_key.tenant_id = run.tenant_id AND start_key.run_id = run.id
     JOIN session ON session.tenant_id = run.tenant_id
     JOIN route ON route.tenant_id = run.tenant_id AND route.handler = 'a-none'
     JOIN api_key AS key ON key.tenant_id = run.tenant_id
     JOIN api_key_secret AS secret ON secret.key_id = key.id
     JOIN schedule ON schedule.tenant_id = run.tenant_id
     LEFT JOIN lease ON lease.tenant_id = run.tenant_id AND lease.task_id >> 20 = run.id
     LEFT JOIN attempt ON attempt.tenant_id = run.tenant_id AND attempt.task_id >> 20 = run.id
     WHERE run.tenant_id = $1
     ORDER BY run.id`,
    [A],
  );
}

interface Called {
  /** Whether the statement read a tenant from its arguments. */
  readonly tenant: boolean;
  readonly result: unknown;
  readonly error: unknown;
  readonly changed: boolean;
}

class RolledBack extends Error {}

async function callAs(statement: Statement, tenantId: number, of: Owned): Promise<Called> {
  let called: Called | undefined;
  await database.db
    .transaction(async (tx) => {
      // What A has loaded, handed to B: a statement must not trust it.
      const loaded = await cache.get(A, of.definitionId);
      const definitions = new DefinitionCache(tx, () => {});
      const values = givenValues(statement.name, tenantId, of, loaded);
      const deps = Object.assign(Object.create(tx), { db: tx, hot: tx, tx, definitions, random: () => 0.5 }) as Db;
      let [result, error] = [undefined as unknown, undefined as unknown];
      let tenant = statement.parameters.includes("tenantId");
      const args = statement.parameters.map((parameter, at) => {
        if (at === 0) return /^\{/.test(parameter) ? deps : bind(deps, tx);
        if (parameter === "definitions") return definitions;
        if (parameter === "p" || parameter.startsWith("{")) return values.item(() => (tenant = true));
        return values.get(parameter);
      });
      try {
        await tx.transaction(async (inner) => {
          Object.assign(deps, { db: inner, hot: inner, tx: inner });
          result = await statement.call(...args.map((arg, at) => (at === 0 ? bind(deps, inner) : arg)));
        });
      } catch (thrown) {
        error = thrown;
      }
      const changed = (await snapshot(tx, A)) !== before;
      called = { tenant, result, error, changed };
      throw new RolledBack();
    })
    .catch((thrown: unknown) => {
      if (!(thrown instanceof RolledBack)) throw thrown;
    });
  return called!;
}

/** The transaction as a `Db` and as what holds one. */
function bind(deps: Db, tx: Db): Db {
  const { definitions, random } = deps as Db & { definitions: unknown; random: unknown };
  return {
    // So that what is not tried within one is as well.
    isTransaction: false,
    rows: tx.rows.bind(tx),
    one: tx.one.bind(tx),
    find: tx.find.bind(tx),
    transaction: tx.transaction.bind(tx),
    close: tx.close.bind(tx),
    ...{ db: tx, hot: tx, definitions, random },
  };
}

/** Every row of the tenant, in every table that has a tenant. */
async function snapshot(tx: Db, tenantId: number): Promise<string> {
  tables ??= await tx.rows<{ name: string }>(
    "",
    `SELECT relname AS name FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
     WHERE attname = 'tenant_id' AND relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
     ORDER BY 1`,
    [],
  );
  const sums = tables.map(
    ({ name }) =>
      `SELECT '${name}' AS name, count(*) AS n, sum(hashtextextended(t::text, 0)) AS sum FROM ${name} AS t WHERE tenant_id = ${tenantId}`,
  );
  const { text } = await tx.one<{ text: string }>(
    "snapshot",
    `SELECT string_agg(s::text, ' ' ORDER BY name) AS text FROM (${sums.join(" UNION ALL ")}) AS s`,
    [],
  );
  return text;
}
let tables: { name: string }[] | undefined;

const REFUSED: ReadonlySet<unknown> = new Set(["missing", "inactive", "refused"]);

/** Nothing was found: emptiness in whatever shape, or that it is missing. */
function isNothing(value: unknown): boolean {
  if (value === undefined || value === null || value === false || value === 0 || value === 0n || value === "")
    return true;
  if (value instanceof Map) return [...value.values()].every(isNothing);
  if (value instanceof Set) return value.size === 0;
  if (value instanceof Uint8Array && Buffer.from(value).includes("RUN_GONE")) return true;
  if (ArrayBuffer.isView(value))
    return new Uint8Array(value.buffer, value.byteOffset, value.byteLength).every((byte) => byte === 0);
  if (Array.isArray(value)) return value.every(isNothing);
  if (typeof value !== "object") return false;
  // A refusal that says nothing of why.
  if ("kind" in value && Object.keys(value).length === 1) return REFUSED.has(value.kind);
  return Object.values(value).every(isNothing);
}

/** The rows, or the one, without what was asked. */
function without(result: unknown, asked: readonly unknown[]): unknown {
  if (asked.length === 0 || typeof result !== "object" || result === null) return result;
  const rows: object[] = Array.isArray(result) ? result : [result];
  return rows.map((row) => Object.values(row).filter((value) => !asked.includes(value)));
}

/** The statement found nothing, or the database's own keys refused a row that would reach another tenant's. */
function isRefusal(error: unknown): boolean {
  if (error instanceof MeshError) return error.reason === "NOT_FOUND";
  if (error instanceof pg.DatabaseError) return error.code?.startsWith("23") === true;
  return error instanceof Error && error.message.endsWith("one row expected, none came");
}

test("statements of every tenant are on the list, and only they", async () => {
  const across: string[] = [];
  for (const statement of statements) {
    const { tenant } = await callAs(statement, B, owned[0]!);
    if (!tenant) across.push(statement.name);
  }

  const known = new Set(statements.map(({ name }) => name));
  expect(across.toSorted()).toEqual([...ACROSS_TENANTS].filter((name) => known.has(name)).toSorted());
});

test("no statement shows or changes anything of tenant A to tenant B", { timeout: 180_000 }, async () => {
  const faults: string[] = [];
  const withTeeth = new Set<string>();
  const tested = statements.filter(({ name }) => !ACROSS_TENANTS.has(name));
  for (const statement of tested) {
    for (const of of owned) {
      const mine = await callAs(statement, A, of);
      const foreign = await callAs(statement, B, of);
      if (mine.changed || (mine.error === undefined && !isNothing(mine.result))) withTeeth.add(statement.name);
      const where = `${statement.name} (run in state ${of.runState})`;
      if (foreign.changed) faults.push(`${where} changes A`);
      const echo = ECHOES[statement.name]?.(of) ?? [];
      if (foreign.error !== undefined) {
        if (!isRefusal(foreign.error)) faults.push(`${where} throws ${foreign.error}`);
      } else if (!MAKES.has(statement.name) && !isNothing(without(foreign.result, echo)))
        faults.push(`${where} answers ${show(foreign.result)}`);
    }
  }

  const toothless = tested.filter(({ name }) => !withTeeth.has(name)).map(({ name }) => name);
  console.log(
    `${tested.length} statements on ${owned.length} runs, ${withTeeth.size} of them find or change something of their own tenant`,
  );
  console.log(`the others: ${toothless.join(", ")}`);
  expect(faults).toEqual([]);
});

/** Statements that make something of B's own, whatever they are given. */
const MAKES = new Set([
  "api-keys/insertApiKey",
  "definitions/insertDefinition",
  "place-tasks/placeTasks",
  "requests/noteRequest",
  "routes/internRoutes",
  "schedules/insertSchedule",
  "sessions/insertSession",
  "slot-counts/lockKeys",
  "start-limited-runs/startLimitedRuns",
  "start-runs/startRuns",
  "start-runs/startFreshRuns",
  "start-within-limits/startWithinLimits",
  "steps/recordSteps",
  "workflows/internWorkflow",
]);

/** Statements that answer what they were asked, with nothing beside it. */
const ECHOES: Readonly<Record<string, (of: Owned) => readonly unknown[]>> = {
  "leases/explainLeases": (of) => [of.taskId, of.fence],
  "limits/readLimits": () => ["one", 1],
  // The run is gone, which is an answer of its own.
  "child-end/findChildAnswer": () => [2],
  "run-output/readRunOutput": () => [true, "null"],
  "run-output/readRunOutputs": () => [true, "null"],
  "resolve-templates/resolveTemplates": () => [true, "null"],
  "standings/listSlotHolders": (of) => ["k:one", `r:${of.runId}`],
};

const show = (value: unknown) =>
  JSON.stringify(value, (_, part) =>
    typeof part === "bigint" ? String(part) : part instanceof Set ? [...part] : part,
  );

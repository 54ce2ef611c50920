import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { Role } from "@runmesh/contracts/tenant/v1/tenant_pb";
import type { MeshError } from "@runmesh/domain/errors";
import { type Caller, type KeyedMesh, startKeyedMesh } from "@runmesh/testing/keyed-mesh";
import { createPost } from "@runmesh/testing/post";
import { afterAll, beforeAll, expect, test } from "vitest";

let mesh: KeyedMesh;
beforeAll(async () => {
  mesh = await startKeyedMesh();
});
afterAll(() => mesh[Symbol.asyncDispose]());

/** A tenant that may ask for so much; its admin is left at the mesh's default by the cache of quotas, as asked first. */
async function limited(name: string, quota: { requestsPerSecond?: number; startsPerSecond?: number }) {
  await mesh.admin.tenants.createTenant({ name, quota });
  const make = async (role: Role) =>
    mesh.as((await mesh.admin.tenants.createApiKey({ name: `${role}`, roles: [role], tenant: name })).secret);
  return { make };
}

/** Calls at once; how many were answered in what time, and the refusals. */
async function callMany(count: number, call: (at: number) => Promise<unknown>) {
  const refusals: { reason: string; retryAfterMs?: number }[] = [];
  let answered = 0;
  const startedAt = performance.now();
  await Promise.all(
    Array.from({ length: count }, (_, at) =>
      call(at).then(
        () => answered++,
        (error) => refusals.push(error),
      ),
    ),
  );
  return { answered, refusals, seconds: (performance.now() - startedAt) / 1_000 };
}

test("beyond a key's requests a second it is OVERLOADED and told how long to wait, and another key is not", async () => {
  const { make } = await limited("requests", { requestsPerSecond: 5 });
  const [first, second] = [await make(Role.VIEWER), await make(Role.ADMIN)];

  const { answered, refusals, seconds } = await callMany(100, () => first.runs.listRuns({}));

  expect(answered).toBeGreaterThanOrEqual(10);
  expect(answered).toBeLessThanOrEqual(10 + 5 * seconds + 1);
  expect(new Set(refusals.map((error) => error.reason))).toEqual(new Set(["OVERLOADED"]));
  for (const { retryAfterMs } of refusals) {
    expect(retryAfterMs).toBeGreaterThan(0);
    expect(retryAfterMs).toBeLessThanOrEqual(200);
  }
  await expect(second.runs.listRuns({})).resolves.toBeDefined();
});

test("what a caller says of itself in headers gives it no fresh bucket", async () => {
  const { make } = await limited("headers", { requestsPerSecond: 5 });
  const viewer = await make(Role.VIEWER);
  const post = createPost(mesh.url);

  const { answered, refusals, seconds } = await callMany(350, async (at) => {
    const told = { "x-tenant": `t${at}`, "x-forwarded-for": `10.0.0.${at % 250}`, "runmesh-principal": `p${at}` };
    const headers = { authorization: `Bearer ${viewer.key}`, ...told };
    const { status, reason } = await post("runmesh.run.v1.RunService/ListRuns", {}, headers);
    if (status !== 200) throw Object.assign(new Error(`${status}`), { reason });
  });

  expect(answered).toBeLessThanOrEqual(10 + 5 * seconds + 1);
  expect(refusals.length).toBe(350 - answered);
  expect(new Set(refusals.map((error) => `${(error as unknown as Error).message} ${error.reason}`))).toEqual(
    new Set(["429 OVERLOADED"]),
  );
});

test("a worker's reports are never refused for their rate", async () => {
  const { make } = await limited("reports", { requestsPerSecond: 2 });
  const worker = await make(Role.WORKER);
  const { session } = await mesh.worker(worker);

  const calls: ((caller: Caller) => Promise<unknown>)[] = [
    ({ leases }) => leases.renewLeases({ ...session }),
    ({ leases }) => leases.completeTasks({ ...session }),
    ({ leases }) => leases.failTasks({ ...session }),
    ({ leases }) => leases.releaseTasks({ ...session }),
    ({ leases }) => leases.exchange({ ...session }),
  ];
  const { answered } = await callMany(100, (at) => calls[at % calls.length]!(worker));
  const { refusals } = await callMany(20, () => worker.leases.acquireTasks({ ...session, max: 1 }));

  expect(answered).toBe(100);
  expect(refusals.length).toBeGreaterThan(0);
});

test("each run of a batch is a start of the whole tenant, whichever key starts it", async () => {
  const { make } = await limited("starts", { startsPerSecond: 10 });
  const [developer, other] = [await make(Role.DEVELOPER), await make(Role.ADMIN)];
  const { name: workflow } = await developer.given.workflow();

  const batch = await developer.runs.startRuns({ runs: Array.from({ length: 60 }, () => ({ workflow })) });
  const refused = await other.runs.startRun({ workflow }).catch((error: MeshError) => error);

  expect(batch.results).toHaveLength(60);
  expect(refused).toMatchObject({ reason: "OVERLOADED" });
  expect((refused as MeshError).retryAfterMs).toBeGreaterThan(2_000);
  await expect(other.runs.listRuns({})).resolves.toBeDefined();
});

test("a quota is replaced by an admin of the system and takes hold within 5 s", async () => {
  const { make } = await limited("changed", { requestsPerSecond: 1 });
  const viewer = await make(Role.VIEWER);
  const startedAt = performance.now();
  await callMany(5, () => viewer.runs.listRuns({}));

  await mesh.admin.tenants.setQuota({ tenant: "changed", quota: { requestsPerSecond: 10_000 } });
  let free = false;
  while (!free && performance.now() - startedAt < 10_000) {
    free = (await callMany(10, () => viewer.runs.listRuns({}))).refusals.length === 0;
    if (!free) await new Promise((resolve) => setTimeout(resolve, 100));
  }

  expect(performance.now() - startedAt).toBeLessThan(6_000);
  const { tenants } = await mesh.admin.tenants.listTenants({});
  expect(tenants.find(({ name }) => name === "changed")!.quota).toMatchObject({ requestsPerSecond: 10_000 });
});

test("a schedule's trigger and each tick of a backfill is a start of its tenant", async () => {
  const { make } = await limited("scheduled", { startsPerSecond: 5 });
  const developer = await make(Role.DEVELOPER);
  const { name: workflow } = await developer.given.workflow();
  const schedules = developer.client(ScheduleService);
  const schedule = { name: "s", workflow, cron: "* * * * *", paused: true, overlap: Schedule_Overlap.ALLOW };
  await schedules.putSchedule({ schedule });
  const hourAgo = Math.floor(Date.now() / 60_000) * 60_000 - 3_600_000;

  const range = { name: "s", from: timestampFromMs(hourAgo), to: timestampFromMs(hourAgo + 40 * 60_000) };
  const { tickCount } = await schedules.backfillSchedule(range);
  const refused = await schedules.triggerSchedule({ name: "s" }).catch((error: MeshError) => error);

  expect(tickCount).toBe(40);
  expect(refused).toMatchObject({ reason: "OVERLOADED" });
  expect((refused as MeshError).retryAfterMs).toBeGreaterThan(2_000);
});

import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Role } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { type KeyedMesh, startKeyedMesh } from "@runmesh/testing/keyed-mesh";
import { afterAll, beforeAll, expect, test } from "vitest";

let mesh: KeyedMesh;
beforeAll(async () => {
  mesh = await startKeyedMesh();
});
afterAll(() => mesh[Symbol.asyncDispose]());

test("every move leaves who did what, on what, from where, and with what result", async () => {
  const admin = await mesh.tenant("moves");
  const developer = await mesh.key(admin, Role.DEVELOPER);
  const who = `key:${developer.id}`;
  const { name, version } = await developer.given.workflow({ tasks: [{ handler: "work" }] });
  const worker = await mesh.worker(await mesh.key(admin, Role.WORKER));
  const dead = await developer.given.run({ tasks: [{ handler: "work", retry: { maxAttempts: 1 } }] });
  const { taskId, ...lease } = await worker.acquireOne();
  await worker.fail({ ...lease, taskId }, { type: "Broken", message: "broken", retryable: false });
  const runId = await developer.given.run({ tasks: [{ handler: "nobody" }] });

  await developer.runs.pauseRun({ runId });
  await developer.runs.resumeRun({ runId });
  await developer.runs.cancelRun({ runId });
  await developer.runs.retryRun({ runId });
  await developer.tasks.replayTask({ taskId });

  const { entries } = await admin.tenants.listAudit({ filter: { principal: who } });
  expect(entries.map((entry) => `${entry.action} ${entry.target} ${entry.result}`)).toEqual([
    `task.replay task/${taskId} done`,
    `run.retry run/${runId} done`,
    `run.cancel run/${runId} cancelled`,
    `run.resume run/${runId} done`,
    `run.pause run/${runId} done`,
    `workflow.register workflow/${name}@${version} done`,
  ]);
  expect(new Set(entries.map((entry) => entry.origin))).toEqual(new Set(["127.0.0.1"]));
  expect(dead).toBeGreaterThan(0n);
});

test("a signal that was sent and one that was refused are told as the same action", async () => {
  const admin = await mesh.tenant("signals");
  const operator = await mesh.key(admin, Role.OPERATOR);
  const runId = await operator.given.run({ tasks: [{ handler: "nobody" }] });

  await operator.runs.sendSignal({ runId, name: "go" });
  await operator.runs.cancelRun({ runId });
  await operator.runs.sendSignal({ runId, name: "go" }).catch(() => {});

  const { entries } = await admin.tenants.listAudit({ filter: { action: "signal.send" } });
  expect(entries.map((entry) => `${entry.target} ${entry.result}`)).toEqual([
    `run/${runId} ILLEGAL_MOVE`,
    `run/${runId} done`,
  ]);
});

test("a refused move leaves its reason, and a refused reading nothing", async () => {
  const admin = await mesh.tenant("refusals");
  const viewer = await mesh.key(admin, Role.VIEWER);
  const operator = await mesh.key(admin, Role.OPERATOR);
  const runId = await operator.given.run({ tasks: [{ handler: "nobody" }] });

  await viewer.runs.cancelRun({ runId }).catch(() => {});
  await operator.runs.cancelRun({ runId: 4711n }).catch(() => {});
  await operator.runs.resumeRun({ runId }).catch(() => {});
  await operator.runs.cancelRun({ runId });
  await operator.runs.resumeRun({ runId }).catch(() => {});
  await operator.given.workflow({ name: "forbidden" }).catch(() => {});
  await viewer.tenants.listAudit({}).catch(() => {});
  await viewer.tenants.createApiKey({ name: "mine", roles: [Role.ADMIN] }).catch(() => {});

  const rows = await admin.tenants.listAudit({});
  const told = rows.entries
    .filter((entry) => entry.action !== "key.create" || entry.result !== "done")
    .map((entry) => `${entry.principal} ${entry.action} ${entry.target} ${entry.result}`);
  const [v, o] = [`key:${viewer.id}`, `key:${operator.id}`];
  expect(told).toEqual([
    `${v} key.create key/mine FORBIDDEN`,
    `${o} workflow.register  FORBIDDEN`,
    `${o} run.resume run/${runId} ILLEGAL_MOVE`,
    `${o} run.cancel run/${runId} cancelled`,
    `${o} run.cancel run/4711 NOT_FOUND`,
    `${v} run.cancel run/${runId} FORBIDDEN`,
  ]);
});

test("the audit is read by page and filter, and of the caller's tenant alone", async () => {
  const admin = await mesh.tenant("pages");
  const before = Date.now();
  for (let i = 0; i < 5; i++) await admin.given.workflow({ name: `w${i}` });

  const targets: string[] = [];
  let pageToken = "";
  do {
    const page = await admin.tenants.listAudit({ filter: { action: "workflow.register" }, pageSize: 2, pageToken });
    expect(page.entries.length).toBeLessThanOrEqual(2);
    targets.push(...page.entries.map((entry) => entry.target));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  const count = async (filter: object) => (await admin.tenants.listAudit({ filter })).entries.length;

  expect(targets).toEqual([4, 3, 2, 1, 0].map((i) => `workflow/w${i}@1`));
  expect(await count({ target: "workflow/w3@1" })).toBe(1);
  expect(await count({ after: timestampFromMs(Date.now() + 60_000) })).toBe(0);
  expect(await count({ before: timestampFromMs(before - 60_000) })).toBe(0);
  expect((await mesh.admin.tenants.listAudit({ filter: { target: "workflow/w3@1" } })).entries).toEqual([]);
  await expect(count({ target: "a\0b" })).rejects.toMatchObject({ reason: "INVALID_FIELD" });
});

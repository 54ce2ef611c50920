import type { DescMethod } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { Role } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { PUBLIC_SERVICES, ROLE_TABLE, SYSTEM_METHODS } from "@runmesh/platform/authorization";
import { ROLES, type Role as RoleName } from "@runmesh/platform/principal";
import { type Caller, type KeyedMesh, startKeyedMesh } from "@runmesh/testing/keyed-mesh";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readMethods } from "./contract-methods.ts";

const ROLE_NUMBERS: Record<RoleName, Role> = {
  viewer: Role.VIEWER,
  operator: Role.OPERATOR,
  developer: Role.DEVELOPER,
  worker: Role.WORKER,
  admin: Role.ADMIN,
};

/** Things of the tenant "default", each of which another tenant could try to reach. */
interface Things {
  readonly runId: bigint;
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly sessionId: bigint;
  readonly sessionToken: string;
  readonly workflow: string;
  readonly keyId: string;
}

let mesh: KeyedMesh;
let methods: DescMethod[];
let own: Record<RoleName, Caller>;
let other: Record<RoleName, Caller>;
let things: Things;

beforeAll(async () => {
  mesh = await startKeyedMesh();
  methods = await readMethods();
  const stranger = await mesh.tenant("other");
  own = await makeCallers(mesh.admin);
  other = await makeCallers(stranger);
  things = await makeThings();
});
afterAll(() => mesh[Symbol.asyncDispose]());

async function makeCallers(admin: Caller): Promise<Record<RoleName, Caller>> {
  const callers = {} as Record<RoleName, Caller>;
  for (const role of ROLES) callers[role] = await mesh.key(admin, ROLE_NUMBERS[role]);
  return callers;
}

async function makeThings(): Promise<Things> {
  const { name: workflow } = await mesh.admin.given.workflow({ name: "theirs", tasks: [{ handler: "work" }] });
  const runId = await mesh.admin.given.run({ tasks: [{ handler: "work" }, { handler: "nobody" }] });
  const schedule = { name: workflow, workflow, cron: "0 0 1 1 *" };
  await mesh.admin.client(ScheduleService).putSchedule({ schedule });
  const worker = await mesh.worker(mesh.admin, { leaseMs: 600_000 });
  const { taskId, fence } = await worker.acquireOne();
  const { id: keyId } = await mesh.key(mesh.admin, Role.VIEWER);
  return { runId, taskId, fence, ...worker.session, workflow, keyId };
}

let unique = 0;

/** Lists that are of one thing, which must be there. */
const REFUSES = /^List(WorkflowVersions|Tasks|Attempts|Logs|Events)$/;

/** A request that names the things wherever it can, and whether it names any. */
function makeRequest(method: DescMethod): { request: Record<string, unknown>; names: boolean } {
  const { runId, taskId, fence, sessionId, sessionToken, workflow, keyId } = things;
  const tenants = method.parent.typeName === "runmesh.tenant.v1.TenantService";
  const creates = /^(Create|Put|Register)/.test(method.name);
  const values: Record<string, unknown> = {
    runId,
    taskId,
    sessionId,
    sessionToken,
    fence,
    workflow,
    id: keyId,
    name: creates || method.name === "Attach" ? `made-${++unique}` : workflow,
    tenant: method.name === "SetQuota" ? "default" : undefined,
    roles: [Role.VIEWER],
    handlers: ["work"],
    max: 1,
    signal: "go",
    runs: [{ workflow }],
    start: { workflow },
    leases: [{ taskId, fence }],
    tasks: [{ taskId, fence }],
    completed: [{ taskId, fence }],
    from: timestampFromMs(Date.now() - 120_000),
    to: timestampFromMs(Date.now() - 60_000),
    definition: { name: `made-${unique}`, tasks: [{ key: "a", handler: "nobody" }] },
  };
  // One of the two, as the method wants it.
  const left =
    method.name === "StartRun" ? ["definition", "idempotencyKey"] : method.input.field.taskId ? ["runId"] : [];
  const request: Record<string, unknown> = {};
  for (const field of method.input.fields) {
    const value = values[field.localName];
    if (value !== undefined && !left.includes(field.localName) && isOfKind(value, field))
      request[field.localName] = value;
  }
  const identities = ["runId", "taskId", "sessionId", "id", ...(creates || tenants ? [] : ["workflow", "name"])];
  // A page is of what a filter finds: where it names another tenant's, nothing is found.
  const pages = method.input.field.pageSize !== undefined && method.output.field.nextPageToken !== undefined;
  const names = identities.some((name) => name in request) && (!pages || REFUSES.test(method.name));
  return { request, names };
}

function isOfKind(value: unknown, field: DescMethod["input"]["fields"][number]): boolean {
  if (Array.isArray(value)) return field.fieldKind === "list";
  if (field.fieldKind === "message") return typeof value === "object";
  return field.fieldKind === "scalar" && typeof value !== "object";
}

/** The reason that the call is refused with, or "" and the text of its answer. */
async function call(caller: Caller, method: DescMethod, request: object): Promise<{ reason: string; answer: string }> {
  const client = caller.client(method.parent) as unknown as Record<
    string,
    (request: object, options?: object) => unknown
  >;
  try {
    if (method.methodKind === "unary") {
      return { reason: "", answer: toText(await client[method.localName]!(request)) };
    }
    for await (const message of client[method.localName]!(request) as AsyncIterable<unknown>) {
      return { reason: "", answer: toText(message) };
    }
    return { reason: "", answer: "" };
  } catch (error) {
    return { reason: (error as { reason?: string }).reason ?? String(error), answer: "" };
  }
}

const toText = (message: unknown) =>
  JSON.stringify(message, (_, value) => (typeof value === "bigint" ? String(value) : value));

const fullName = (method: DescMethod) => `${method.parent.typeName}/${method.name}`;

const CREDENTIAL = ["FORBIDDEN", "UNAUTHENTICATED"];
const NOT_THERE = ["NOT_FOUND", "SESSION_CLOSED", "NOT_SERVED"];

test("every method lets the roles of its row through and no other, and nobody without a credential", async () => {
  const holes: string[] = [];
  let cells = 0;
  const nobody = mesh.as(undefined);
  for (const method of methods) {
    const name = fullName(method);
    const none = await call(nobody, method, makeRequest(method).request);
    cells++;
    if (none.reason !== "UNAUTHENTICATED") holes.push(`${name} without a credential: ${none.reason}`);
    for (const role of ROLES) {
      const { reason } = await call(own[role], method, makeRequest(method).request);
      cells++;
      const allowed = ROLE_TABLE[name]!.includes(role);
      const fits = allowed ? !CREDENTIAL.includes(reason) && reason !== "INTERNAL" : reason === "FORBIDDEN";
      if (!fits) holes.push(`${name} as ${role}: ${reason}`);
    }
  }

  console.log(`${methods.length} methods, ${cells} cells, ${holes.length} holes`);
  expect(holes).toEqual([]);
  expect(methods.map(fullName).toSorted()).toEqual(Object.keys(ROLE_TABLE).toSorted());
  expect(methods.some((method) => PUBLIC_SERVICES.includes(method.parent.typeName))).toBe(false);
});

test("whatever the role, another tenant's ids are not there, its lists are empty, and nothing of it changes", async () => {
  things = await makeThings();
  const before = await snapshot();
  const holes: string[] = [];
  let cells = 0;
  for (const method of methods) {
    const name = fullName(method);
    for (const role of ROLES) {
      const { request, names } = makeRequest(method);
      const { reason, answer } = await call(other[role], method, request);
      cells++;
      const allowed = ROLE_TABLE[name]!.includes(role) && !SYSTEM_METHODS.includes(name);
      if (!allowed) {
        if (reason !== "FORBIDDEN") holes.push(`${name} as another's ${role}: ${reason}`);
      } else if (names && !NOT_THERE.includes(reason)) {
        holes.push(`${name} as another's ${role}: ${reason} ${answer}`);
      } else if (reason === "INTERNAL" || CREDENTIAL.includes(reason)) {
        holes.push(`${name} as another's ${role}: ${reason}`);
      } else if (/"theirs"|"taskId"/.test(answer.replaceAll(/"lost":\[[^\]]*\]/g, ""))) {
        holes.push(`${name} as another's ${role} shows ${answer}`);
      }
    }
  }

  console.log(`${cells} cells of another tenant, ${holes.length} holes`);
  expect(holes).toEqual([]);
  expect(await snapshot()).toEqual(before);
});

/** What the tenant "default" has: rows by table, without what time alone changes. */
async function snapshot(): Promise<unknown> {
  return mesh.db.rows(
    "",
    `SELECT 'run' AS what, id::text, state::text AS how FROM run WHERE tenant_id = 1
     UNION ALL SELECT 'lease', task_id::text, fence::text FROM lease WHERE tenant_id = 1
     UNION ALL SELECT 'session', id::text, epoch::text FROM session WHERE tenant_id = 1
     UNION ALL SELECT 'key', id, (revoked_at IS NULL AND rotated_until IS NULL)::text FROM api_key WHERE tenant_id = 1
     UNION ALL SELECT 'workflow', name, latest_version::text FROM workflow WHERE tenant_id = 1
     UNION ALL SELECT 'schedule', id::text, name || paused || started_count FROM schedule WHERE tenant_id = 1
     UNION ALL SELECT 'quota', tenant_id::text, requests_per_second::text FROM tenant_quota WHERE tenant_id = 1
     ORDER BY 1, 2`,
    [],
  );
}

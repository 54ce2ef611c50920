import type { Interceptor } from "@connectrpc/connect";
import { MeshError } from "@runmesh/domain/errors";
import { type Principal, principalKey, ROLES, type Role, SYSTEM_TENANT_ID } from "./principal.ts";
import { coversMethod } from "./scopes.ts";

const EVERYONE: readonly Role[] = ROLES;
/** Reading: everyone but a key that was made for workers alone. */
const READ: readonly Role[] = ["viewer", "operator", "developer", "admin"];
/** Starting and moving runs and tasks, as they were defined: an operator defines nothing. */
const OPERATE: readonly Role[] = ["operator", "developer", "admin"];
/** Changing what will run. */
const DEFINE: readonly Role[] = ["developer", "admin"];
/** What workers call. Reading is not among it: a key that leaks from a worker's machine shows no other's payloads. */
const WORK: readonly Role[] = ["worker", "admin"];
const ADMINISTER: readonly Role[] = ["admin"];

/** Who may call what: the one source for enforcement, tests and docs. A method without a row is refused. */
export const ROLE_TABLE: Readonly<Record<string, readonly Role[]>> = {
  "runmesh.workflow.v1.WorkflowService/RegisterWorkflow": DEFINE,
  "runmesh.workflow.v1.WorkflowService/GetWorkflow": READ,
  "runmesh.workflow.v1.WorkflowService/ListWorkflows": READ,
  "runmesh.workflow.v1.WorkflowService/ListWorkflowVersions": READ,

  "runmesh.run.v1.RunService/StartRun": OPERATE,
  "runmesh.run.v1.RunService/StartRuns": OPERATE,
  "runmesh.run.v1.RunService/GetRun": READ,
  "runmesh.run.v1.RunService/AwaitRuns": READ,
  "runmesh.run.v1.RunService/ListRuns": READ,
  "runmesh.run.v1.RunService/WatchRun": READ,
  "runmesh.run.v1.RunService/ListEvents": READ,
  "runmesh.run.v1.RunService/CancelRun": OPERATE,
  "runmesh.run.v1.RunService/PauseRun": OPERATE,
  "runmesh.run.v1.RunService/ResumeRun": OPERATE,
  "runmesh.run.v1.RunService/RetryRun": OPERATE,
  "runmesh.run.v1.RunService/WatchRuns": READ,
  "runmesh.run.v1.RunService/CancelRuns": OPERATE,
  "runmesh.run.v1.RunService/PauseRuns": OPERATE,
  "runmesh.run.v1.RunService/ResumeRuns": OPERATE,
  "runmesh.run.v1.RunService/RetryRuns": OPERATE,
  "runmesh.run.v1.RunService/RerunRun": OPERATE,
  "runmesh.run.v1.RunService/SendSignal": OPERATE,
  "runmesh.run.v1.RunService/StartChildRun": WORK,

  "runmesh.task.v1.TaskService/GetTask": READ,
  "runmesh.task.v1.TaskService/ListTasks": READ,
  "runmesh.task.v1.TaskService/ListAttempts": READ,
  "runmesh.task.v1.TaskService/ListLogs": READ,
  "runmesh.task.v1.TaskService/ListDeadLetters": READ,
  "runmesh.task.v1.TaskService/ReplayTask": OPERATE,
  "runmesh.task.v1.TaskService/ReplayDeadLetters": OPERATE,

  "runmesh.lease.v1.LeaseService/Attach": WORK,
  "runmesh.lease.v1.LeaseService/AcquireTasks": WORK,
  "runmesh.lease.v1.LeaseService/RenewLeases": WORK,
  "runmesh.lease.v1.LeaseService/StartTasks": WORK,
  "runmesh.lease.v1.LeaseService/CompleteTasks": WORK,
  "runmesh.lease.v1.LeaseService/FailTasks": WORK,
  "runmesh.lease.v1.LeaseService/ReleaseTasks": WORK,
  "runmesh.lease.v1.LeaseService/Exchange": WORK,
  "runmesh.lease.v1.LeaseService/GetTaskParams": WORK,
  "runmesh.lease.v1.LeaseService/RecordSteps": WORK,
  "runmesh.lease.v1.LeaseService/ListSteps": WORK,
  "runmesh.lease.v1.LeaseService/SuspendTask": WORK,
  "runmesh.lease.v1.LeaseService/ListWorkers": READ,

  "runmesh.schedule.v1.ScheduleService/PutSchedule": DEFINE,
  "runmesh.schedule.v1.ScheduleService/GetSchedule": READ,
  "runmesh.schedule.v1.ScheduleService/ListSchedules": READ,
  "runmesh.schedule.v1.ScheduleService/DeleteSchedule": DEFINE,
  "runmesh.schedule.v1.ScheduleService/PauseSchedule": OPERATE,
  "runmesh.schedule.v1.ScheduleService/ResumeSchedule": OPERATE,
  "runmesh.schedule.v1.ScheduleService/TriggerSchedule": OPERATE,
  "runmesh.schedule.v1.ScheduleService/BackfillSchedule": OPERATE,

  "runmesh.tenant.v1.TenantService/GetPrincipal": EVERYONE,
  "runmesh.tenant.v1.TenantService/CreateTenant": ADMINISTER,
  "runmesh.tenant.v1.TenantService/ListTenants": ADMINISTER,
  "runmesh.tenant.v1.TenantService/SetQuota": ADMINISTER,
  "runmesh.tenant.v1.TenantService/CreateApiKey": ADMINISTER,
  "runmesh.tenant.v1.TenantService/ListApiKeys": ADMINISTER,
  "runmesh.tenant.v1.TenantService/RotateApiKey": ADMINISTER,
  "runmesh.tenant.v1.TenantService/RevokeApiKey": ADMINISTER,
  "runmesh.tenant.v1.TenantService/ListAudit": ADMINISTER,
};

/** Beyond their row, these are for principals of the system's own tenant. */
export const SYSTEM_METHODS: readonly string[] = [
  "runmesh.tenant.v1.TenantService/CreateTenant",
  "runmesh.tenant.v1.TenantService/ListTenants",
  "runmesh.tenant.v1.TenantService/SetQuota",
];

/** Served to callers without a principal: they tell nothing of any tenant. */
export const PUBLIC_SERVICES: readonly string[] = [
  "grpc.health.v1.Health",
  "grpc.reflection.v1.ServerReflection",
  "grpc.reflection.v1alpha.ServerReflection",
];

/** Server interceptor, after whatever sets the principal: UNAUTHENTICATED without one, FORBIDDEN without a role. */
export function authorize(): Interceptor {
  const open = new Set(PUBLIC_SERVICES);

  return (next) => async (request) => {
    const service = request.service.typeName;
    if (open.has(service)) return next(request);
    const principal = request.contextValues.get(principalKey);
    if (principal === undefined) throw new MeshError("UNAUTHENTICATED", "the call carries no credential");
    const method = `${service}/${request.method.name}`;
    const why = findRefusal(principal, method);
    if (why !== undefined) throw new MeshError("FORBIDDEN", `${method} ${why}`);
    return next(request);
  };
}

const ROWS = new Map(Object.entries(ROLE_TABLE).map(([method, roles]) => [method, new Set<Role>(roles)]));
const SYSTEM = new Set(SYSTEM_METHODS);

/** Why the principal may not call the method; undefined when it may. */
function findRefusal(principal: Principal, method: string): string | undefined {
  const allowed = ROWS.get(method);
  if (allowed === undefined) return "needs no role that there is";
  if (!principal.roles.some((role) => allowed.has(role))) return `needs one of ${[...allowed].join(", ")}`;
  if (SYSTEM.has(method) && principal.tenantId !== SYSTEM_TENANT_ID) return "is for the system's own admins";
  if (!coversMethod(principal.scopes ?? [], method)) return "is beyond the scopes of the credential";
  return undefined;
}

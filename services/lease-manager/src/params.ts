import { MeshError } from "@runmesh/domain/errors";
import { ordinalOf, runIdOf, taskId as toTaskId } from "@runmesh/domain/ids";
import { type Lookup, resolveTemplate, type Template } from "@runmesh/domain/references";
import { findOutputs } from "@runmesh/store/attempts";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache, LoadedDefinition } from "@runmesh/store/definition-cache";
import { explainLeases, type LeaseKey } from "@runmesh/store/leases";
import type { ClaimedLease } from "@runmesh/store/ready";
import { findInputs, findRunDefinitions } from "@runmesh/store/runs";
import type { Session } from "./sessions.ts";

/** A claimed lease with its definition. */
export interface LoadedLease {
  readonly lease: Pick<ClaimedLease, "taskId" | "input" | "hasInput">;
  readonly loaded: LoadedDefinition;
}

export type Params =
  | { readonly ok: true; readonly json: Uint8Array }
  | { readonly ok: false; readonly message: string };

const constants = new WeakMap<Template, Uint8Array>();

/** Resolves what each handler receives. Params without a reference cost nothing: their stored bytes are handed out. */
export async function resolveParams(db: Db, tenantId: number, leases: readonly LoadedLease[]): Promise<Params[]> {
  const woven = leases.filter(({ lease, loaded }) => !loaded.template(ordinalOf(lease.taskId)).isConstant);
  const sources = woven.length === 0 ? undefined : await readSources(db, tenantId, woven);
  return leases.map((item) => {
    const template = item.loaded.template(ordinalOf(item.lease.taskId));
    return template.isConstant ? { ok: true, json: constantOf(template) } : weave(item, template, sources!);
  });
}

function constantOf(template: Template): Uint8Array {
  let json = constants.get(template);
  if (json === undefined) {
    json = Buffer.from(template.parts.join(""));
    constants.set(template, json);
  }
  return json;
}

interface Sources {
  readonly inputs: ReadonlyMap<bigint, string>;
  readonly outputs: ReadonlyMap<bigint, string>;
}

function weave({ lease, loaded }: LoadedLease, template: Template, sources: Sources): Params {
  const runId = runIdOf(lease.taskId);
  const lookup: Lookup = {
    input: () => sources.inputs.get(runId),
    output: (key) => sources.outputs.get(toTaskId(runId, loaded.plan.ordinalOf.get(key)!)),
  };
  const resolution = resolveTemplate(template, lookup);
  if (resolution.ok) return { ok: true, json: Buffer.from(resolution.text) };
  const { path, reference, why } = resolution;
  const found = why === "missing" ? "found nothing" : "makes the params larger than 4 MiB";
  return { ok: false, message: `params${path}: ${reference} ${found}` };
}

async function readSources(db: Db, tenantId: number, leases: readonly LoadedLease[]): Promise<Sources> {
  const inputs = new Map<bigint, string>();
  const missing = new Set<bigint>();
  const wanted = new Set<bigint>();
  for (const { lease, loaded } of leases) {
    const runId = runIdOf(lease.taskId);
    for (const part of loaded.template(ordinalOf(lease.taskId)).parts) {
      if (typeof part === "string") continue;
      const { source } = part.reference;
      if (source !== "input") wanted.add(toTaskId(runId, loaded.plan.ordinalOf.get(source.task)!));
      else if (lease.input !== undefined) inputs.set(runId, lease.input.toString("utf8"));
      else if (lease.hasInput) missing.add(runId);
    }
  }
  const outputs = new Map<bigint, string>();
  if (missing.size > 0) {
    const rows = await findInputs(db, { tenantId, runIds: [...missing].sort(ascending) });
    for (const row of rows) inputs.set(row.run_id, row.input.toString("utf8"));
  }
  if (wanted.size > 0) {
    const rows = await findOutputs(db, { tenantId, taskIds: [...wanted].sort(ascending) });
    for (const row of rows) outputs.set(row.task_id, row.output?.toString("utf8") ?? "null");
  }
  return { inputs, outputs };
}

const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : 1);

interface ParamsDeps {
  readonly hot: Db;
  readonly definitions: DefinitionCache;
}

/** The params of a lease whose answer had no room for them. Throws FENCE_STALE. */
export async function getParams(deps: ParamsDeps, session: Session, lease: LeaseKey): Promise<Uint8Array> {
  const { tenantId, id: sessionId } = session;
  const [row] = await explainLeases(deps.hot, { tenantId, sessionId, leases: [lease] });
  if (row?.lease_fence !== lease.fence) {
    throw new MeshError("FENCE_STALE", `fence ${lease.fence} of task ${lease.taskId} is not current`);
  }
  const [run] = await findRunDefinitions(deps.hot, { tenantId, runIds: [runIdOf(lease.taskId)] });
  const loaded = await deps.definitions.get(tenantId, run!.definition_id);
  const item = { lease: { taskId: lease.taskId, input: undefined, hasInput: true }, loaded };
  const [params] = await resolveParams(deps.hot, tenantId, [item]);
  if (params!.ok) return params!.json;
  throw new MeshError("INVALID_REFERENCE", params!.message);
}

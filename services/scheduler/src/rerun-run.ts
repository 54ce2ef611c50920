import { create } from "@bufbuild/protobuf";
import { type RerunRunRequest, StartRunRequestSchema } from "@runmesh/contracts/run/v1/run_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import { digestOf } from "@runmesh/platform/digest";
import type { Principal } from "@runmesh/platform/principal";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import { setRerunOf } from "@runmesh/store/reruns";
import { findInputs, findRun, type RunRow } from "@runmesh/store/runs";
import { useDefinition } from "@runmesh/store/unused-definitions";
import { DeferredCancels } from "./deferred-cancels.ts";
import { Registry } from "./registry.ts";
import { readRequestId } from "./request-id.ts";
import { type StartDeps, type StartedRun, startRequestedRuns } from "./start-runs.ts";

type Deps = StartDeps & { readonly wakeups: Wakeups };

/**
 * Starts a run with the input and labels of another, linked to it. The link is written in the transaction of the start,
 * so a rerun is never seen without. The request id is scoped to the run: the same id reruns another run anew.
 */
export async function rerunRun(
  deps: Deps,
  { tenantId, name }: Principal,
  request: RerunRunRequest,
  traceparent: string | undefined,
): Promise<StartedRun> {
  const { runId } = request;
  const requestId = readRequestId(request.requestId);
  const row = await findRun(deps.db, { tenantId, runId });
  if (row === undefined) throw new MeshError("NOT_FOUND", `no run ${runId}`);
  const loaded = await findDefinition(deps, tenantId, row, request);
  const [found] = await findInputs(deps.db, { tenantId, runIds: [runId] });
  const start = create(StartRunRequestSchema, {
    requestId: requestId === "" ? "" : digestOf(`rerun:${runId}:${requestId}`),
    labels: row.labels,
    ...(found !== undefined && { inputPayload: { case: "inputJson" as const, value: found.input } }),
  });
  const { run, pushedOut } = await deps.db.transaction(async (tx) => {
    const pushedOut = new DeferredCancels({ ...deps, db: tx });
    const scoped = { ...deps, db: tx, hot: tx, registry: new Registry(tx), moves: pushedOut };
    const [started] = await startRequestedRuns(scoped, tenantId, name, [start], traceparent, loaded);
    if (started instanceof MeshError) throw started;
    if (started!.created) await setRerunOf(tx, { tenantId, runId: started!.runId, rerunOf: runId });
    return { run: started!, pushedOut };
  });
  await pushedOut.perform(deps.moves);
  return run;
}

/** That of the run, or the version asked for. Throws NOT_FOUND. */
async function findDefinition(
  { db, definitions, registry }: Deps,
  tenantId: number,
  row: RunRow,
  { definition }: RerunRunRequest,
): Promise<LoadedDefinition> {
  const isNewest = definition.case === "newestVersion" && definition.value;
  const version = definition.case === "workflowVersion" ? definition.value : 0;
  if (!isNewest && version === 0) {
    const isInline = row.version === 0;
    // It goes with its last run, which may be this one.
    if (isInline && !(await useDefinition(db, { tenantId, id: row.definition_id }))) {
      throw new MeshError("NOT_FOUND", `no run ${row.id}`);
    }
    return definitions.get(tenantId, row.definition_id);
  }
  const found = await registry.getVersion(tenantId, row.workflow, version);
  return definitions.get(tenantId, found.id);
}

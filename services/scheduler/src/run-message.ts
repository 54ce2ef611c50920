import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Run, type Run_State, RunSchema, TaskCountsSchema } from "@runmesh/contracts/run/v1/run_pb";
import { ordinalOf } from "@runmesh/domain/ids";
import { printable } from "@runmesh/domain/printable";
import type { Resolution } from "@runmesh/domain/references";
import { RUN_STATES } from "@runmesh/domain/states";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache, LoadedDefinition } from "@runmesh/store/definition-cache";
import { readRunOutputs } from "@runmesh/store/run-output";
import { findInputs, type RunRow } from "@runmesh/store/runs";

const time = (date: Date | null): Timestamp | undefined => (date === null ? undefined : timestampFromDate(date));
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A run without payloads. */
export function writeRun(row: RunRow, failureKey = ""): Run {
  const { task_count: total, open_count: open, dead_count: dead } = row;
  const { skipped_count: skipped, cancelled_count: cancelled } = row;
  return create(RunSchema, {
    id: row.id,
    workflow: row.workflow,
    workflowVersion: row.version,
    state: row.state as Run_State,
    idempotencyKey: row.idempotency_key ?? "",
    labels: row.labels,
    tasks: create(TaskCountsSchema, {
      total,
      open,
      dead,
      skipped,
      cancelled,
      succeeded: total - open - dead - skipped - cancelled,
    }),
    sequence: BigInt(row.sequence),
    createTime: timestampFromDate(row.created_at),
    ...defined({
      dueTime: time(row.due_at),
      startTime: time(row.started_at),
      endTime: time(row.finished_at),
      deadlineTime: time(row.deadline_at),
    }),
    ...(row.failure_type !== null && {
      failure: {
        taskKey: failureKey,
        errorType: row.failure_type,
        message: printable(row.failure_message ?? Buffer.alloc(0)),
      },
    }),
    ...(row.cancelled_by !== null && {
      cancellation: { principal: row.cancelled_by, comment: row.cancel_comment ?? "" },
    }),
    parentRunId: row.parent_run_id ?? 0n,
    parentTaskId: row.parent_task_id ?? 0n,
    rerunOf: row.rerun_of ?? 0n,
  });
}

/** Leaves out what is undefined: an optional message field is absent, not undefined. */
export function defined<T extends object>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never;
}

/** A run with its failure's task key, and its output once it SUCCEEDED. */
export async function writeWholeRun(deps: PointReads, tenantId: number, row: RunRow, withInput: boolean): Promise<Run> {
  const [run] = await writeWholeRuns(deps, tenantId, [row]);
  if (withInput) {
    const [found] = await findInputs(deps.db, { tenantId, runIds: [row.id] });
    run!.inputJson = found?.input ?? bytes("null");
  }
  return run!;
}

export interface PointReads {
  readonly db: Db;
  readonly definitions: DefinitionCache;
}

/** Runs with their failures' task keys and their outputs, without inputs. Outputs that were read already are given. */
export async function writeWholeRuns(
  deps: PointReads,
  tenantId: number,
  rows: readonly RunRow[],
  known: ReadonlyMap<bigint, Resolution> = new Map(),
): Promise<Run[]> {
  const runs: Run[] = [];
  const succeeded: { readonly run: Run; readonly runId: bigint; readonly loaded: LoadedDefinition }[] = [];
  for (const row of rows) {
    const loaded = await deps.definitions.get(tenantId, row.definition_id);
    const failureKey = row.failure_task_id === null ? "" : loaded.plan.keys[ordinalOf(row.failure_task_id)]!;
    const run = writeRun(row, failureKey);
    runs.push(run);
    if (row.state !== RUN_STATES.SUCCEEDED) continue;
    const output = known.get(row.id);
    // One that found nothing was read too early.
    if (output?.ok) addOutput(run, output);
    else succeeded.push({ run, runId: row.id, loaded });
  }
  if (succeeded.length === 0) return runs;
  const outputs = await readRunOutputs(deps.db, { tenantId, runs: succeeded });
  for (const [i, { run }] of succeeded.entries()) addOutput(run, outputs[i]!);
  return runs;
}

function addOutput(run: Run, resolution: Resolution): void {
  if (resolution.ok) run.outputJson = bytes(resolution.text);
  else {
    run.failure = create(RunSchema, {
      failure: {
        errorType: "UNRESOLVED_REFERENCE",
        message: `output${resolution.path}: ${resolution.reference} found ${resolution.why === "missing" ? "nothing" : "too much"}`,
      },
    }).failure!;
  }
}

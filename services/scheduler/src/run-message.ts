import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Run, type Run_State, RunSchema, TaskCountsSchema } from "@runmesh/contracts/run/v1/run_pb";
import { ordinalOf } from "@runmesh/domain/ids";
import { printable } from "@runmesh/domain/printable";
import { type Lookup, resolveTemplate } from "@runmesh/domain/references";
import { RUN_STATES } from "@runmesh/domain/states";
import { findOutputs } from "@runmesh/store/attempts";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache, LoadedDefinition } from "@runmesh/store/definition-cache";
import { findInputs, type RunRow } from "@runmesh/store/runs";
import { toTaskIds } from "./task-ids.ts";

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
export async function writeWholeRun(
  deps: { readonly db: Db; readonly definitions: DefinitionCache },
  tenantId: number,
  row: RunRow,
  withInput: boolean,
): Promise<Run> {
  const loaded = await deps.definitions.get(tenantId, row.definition_id);
  const failureKey = row.failure_task_id === null ? "" : loaded.plan.keys[ordinalOf(row.failure_task_id)]!;
  const run = writeRun(row, failureKey);
  const input = async () => (await findInputs(deps.db, { tenantId, runIds: [row.id] }))[0]?.input.toString("utf8");
  if (withInput) run.inputJson = bytes((await input()) ?? "null");
  if (row.state === RUN_STATES.SUCCEEDED) await addOutput(deps.db, tenantId, row, loaded, run, input);
  return run;
}

/** The output is derived from the results it refers to, so ending a run writes none. */
async function addOutput(
  db: Db,
  tenantId: number,
  row: RunRow,
  loaded: LoadedDefinition,
  run: Run,
  getInput: () => Promise<string | undefined>,
): Promise<void> {
  const template = loaded.output;
  const wanted = template.isConstant ? [] : template.parts.filter((part) => typeof part !== "string");
  const keys = wanted.flatMap(({ reference }) => (reference.source === "input" ? [] : [reference.source.task]));
  const input = wanted.some(({ reference }) => reference.source === "input") ? await getInput() : undefined;
  const outputs = new Map<bigint, string>();
  const taskIds = toTaskIds(loaded, row.id, keys);
  if (taskIds.length > 0) {
    for (const found of await findOutputs(db, { tenantId, taskIds })) {
      outputs.set(found.task_id, found.output?.toString("utf8") ?? "null");
    }
  }
  const lookup: Lookup = {
    input: () => input,
    output: (key) => outputs.get(toTaskIds(loaded, row.id, [key])[0]!),
  };
  const resolution = resolveTemplate(template, lookup);
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

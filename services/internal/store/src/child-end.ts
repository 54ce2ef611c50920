import { ordinalOf } from "@runmesh/domain/ids";
import { printable } from "@runmesh/domain/printable";
import { isTerminalRun, readRunState } from "@runmesh/domain/states";
import type { Db } from "./db.ts";
import type { DefinitionCache } from "./definition-cache.ts";
import { readRunOutput } from "./run-output.ts";
import { answerWaits } from "./step-waits.ts";
import { STEP_KINDS, STEP_OUTCOMES } from "./steps.ts";
import { lockSuspended } from "./suspended.ts";
import { NOTHING_PLACED, type Placed, wakeTask } from "./wake-tasks.ts";

const MAX_VALUE_BYTES = 256 * 1024;

/** An error as a record keeps it. */
export interface RecordedError {
  readonly type: string;
  readonly message: string;
  /** Of a child run, as it ended. One that SUCCEEDED has an output that the parent cannot be given. */
  readonly state?: string;
  readonly taskKey?: string;
  /** Of a step: where it ends its handler, another attempt may follow. */
  readonly retryable?: boolean;
}

export interface Answer {
  readonly outcome: number;
  readonly value: Buffer | null;
}

const recordError = (error: RecordedError): Answer => ({
  outcome: STEP_OUTCOMES.FAILED,
  value: Buffer.from(JSON.stringify(error)),
});

interface EndRow {
  state: number;
  definition_id: bigint;
  failure_task_id: bigint | null;
  failure_type: string | null;
  failure_message: Buffer | null;
}

/** What a child run answers its parent; `undefined` while it goes on. The child is locked. */
export async function findChildAnswer(
  tx: Db,
  definitions: DefinitionCache,
  p: { tenantId: number; runId: bigint },
): Promise<Answer | undefined> {
  const row = await tx.find<EndRow>(
    "find_run_end",
    `
  SELECT state, definition_id, failure_task_id, failure_type, failure_message FROM run
  WHERE tenant_id = $1 AND id = $2`,
    [p.tenantId, p.runId],
  );
  if (row === undefined) return recordError({ type: "RUN_GONE", message: `run ${p.runId} is not kept any more` });
  const state = readRunState(row.state);
  if (!isTerminalRun(state)) return undefined;
  const loaded = await definitions.get(p.tenantId, row.definition_id);
  if (state !== "SUCCEEDED") {
    const taskKey = row.failure_task_id === null ? "" : loaded.plan.keys[ordinalOf(row.failure_task_id)]!;
    const message = printable(row.failure_message ?? Buffer.alloc(0));
    return recordError({ type: row.failure_type ?? "", message, state, taskKey });
  }
  const output = await readRunOutput(tx, { ...p, loaded });
  if (!output.ok) {
    const message = `output${output.path}: ${output.reference} found ${output.why === "missing" ? "nothing" : "too much"}`;
    return recordError({ type: "UNRESOLVED_REFERENCE", message, state });
  }
  const value = Buffer.from(output.text);
  if (value.length <= MAX_VALUE_BYTES) return { outcome: STEP_OUTCOMES.ANSWERED, value };
  const message = `the output of run ${p.runId} is ${value.length} bytes; a parent takes at most ${MAX_VALUE_BYTES}`;
  return recordError({ type: "TOO_LARGE", message, state });
}

/**
 * Tells a parent that its child has ended, in the transaction that ends the child, and wakes it where it waits for that.
 * Whoever suspends a parent holds the lock of its children meanwhile, so either this finds it suspended, or it finds
 * the child ended: no wake-up is lost. The caller admits what is placed.
 */
export async function tellParent(
  tx: Db,
  definitions: DefinitionCache,
  p: { tenantId: number; runId: bigint; parentTaskId: bigint },
): Promise<Placed> {
  const { tenantId, runId, parentTaskId: taskId } = p;
  if (!(await lockSuspended(tx, { tenantId, taskId }))) return NOTHING_PLACED;
  const waits = await tx.rows<{ position: number }>(
    "find_result_waits",
    `
  SELECT position FROM step
  WHERE tenant_id = $1 AND task_id = $2 AND kind = ${STEP_KINDS.RESULT} AND child_run_id = $3 AND done IS NULL
  ORDER BY position`,
    [tenantId, taskId, runId],
  );
  if (waits.length === 0) return NOTHING_PLACED;
  const answer = await findChildAnswer(tx, definitions, { tenantId, runId });
  if (answer === undefined) throw new Error(`run ${runId} told its parent of an end that it has not come to`);
  await answerWaits(tx, { tenantId, taskId, answers: waits.map(({ position }) => ({ position, ...answer })) });
  return wakeTask(tx, definitions, { tenantId, taskId });
}

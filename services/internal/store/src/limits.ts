import { resolveConcurrencyKey } from "@runmesh/domain/concurrency-key";
import { ordinalOf, runIdOf } from "@runmesh/domain/ids";
import { mayHoldReferences } from "@runmesh/domain/references";
import type { Db } from "./db.ts";
import type { LoadedDefinition } from "./definition-cache.ts";
import { findInputs } from "./runs.ts";

/** The limits that a task must pass before it is ready. */
export interface TaskLimits {
  /** `undefined` where it has no concurrency key. */
  readonly key: string | undefined;
  /** 0 for none. */
  readonly slotLimit: number;
  /** `max_parallel` of its run; 0 for none. */
  readonly runLimit: number;
}

export const NO_LIMITS: TaskLimits = { key: undefined, slotLimit: 0, runLimit: 0 };

/** Whether ends and starts of this definition's tasks have to do with limits: the others never ask. */
export const isLimited = (loaded: LoadedDefinition): boolean =>
  loaded.definition.concurrency !== undefined || hasTaskLimits(loaded);

export const hasTaskLimits = ({ definition }: LoadedDefinition): boolean =>
  definition.maxParallel > 0 || definition.tasks.some((task) => task.concurrency !== undefined);

/** Whether a task must pass a limit. */
export const isTaskLimited = ({ definition }: LoadedDefinition, taskId: bigint): boolean =>
  definition.maxParallel > 0 || definition.tasks[ordinalOf(taskId)]!.concurrency !== undefined;

/** Whether a task's limits are known only with its run's input. */
export const needsInput = ({ definition }: LoadedDefinition, taskId: bigint): boolean => {
  const { concurrency } = definition.tasks[ordinalOf(taskId)]!;
  return concurrency !== undefined && mayHoldReferences(concurrency.key);
};

/** The limits of a task. `input` is JSON text; `undefined` where the run has none, or none is needed. */
export function limitsOf({ definition }: LoadedDefinition, taskId: bigint, input?: string): TaskLimits {
  const { concurrency } = definition.tasks[ordinalOf(taskId)]!;
  return {
    key: concurrency && resolveKey(concurrency.key, input),
    slotLimit: concurrency?.limit ?? 0,
    runLimit: definition.maxParallel,
  };
}

/**
 * The limits of tasks of one run. A key that refers to what the input does not have shares the limit of all that lack
 * it, under its own text: the task is run, and no limit is passed by.
 */
export async function readLimits(
  db: Db,
  tenantId: number,
  loaded: LoadedDefinition,
  taskIds: readonly bigint[],
): Promise<TaskLimits[]> {
  const input = taskIds.some((taskId) => needsInput(loaded, taskId))
    ? await readInput(db, tenantId, runIdOf(taskIds[0]!))
    : undefined;
  return taskIds.map((taskId) => limitsOf(loaded, taskId, input));
}

export async function readInput(db: Db, tenantId: number, runId: bigint): Promise<string | undefined> {
  const [row] = await findInputs(db, { tenantId, runIds: [runId] });
  return row?.input.toString("utf8");
}

export function resolveKey(key: string, input: string | undefined): string {
  const resolution = resolveConcurrencyKey(key, input);
  return resolution.ok ? resolution.key : key;
}

/** Names under which slots are counted. */
export const slotKey = (concurrencyKey: string): string => `k:${concurrencyKey}`;
export const runSlotKey = (runId: bigint): string => `r:${runId}`;

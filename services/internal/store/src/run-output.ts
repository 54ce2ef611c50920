import { taskId as toTaskId } from "@runmesh/domain/ids";
import { type Lookup, type Resolution, resolveTemplate } from "@runmesh/domain/references";
import { findOutputs } from "./attempts.ts";
import type { Db } from "./db.ts";
import type { LoadedDefinition } from "./definition-cache.ts";
import { findInputs } from "./runs.ts";

/** A run that SUCCEEDED, with its definition. */
export interface SucceededRun {
  readonly runId: bigint;
  readonly loaded: LoadedDefinition;
}

/**
 * What runs that SUCCEEDED answer, in order. It is derived from the results that it refers to, so ending a run writes
 * none; what many runs refer to is read at once.
 */
export async function readRunOutputs(
  db: Db,
  p: { tenantId: number; runs: readonly SucceededRun[] },
): Promise<Resolution[]> {
  const { tenantId, runs } = p;
  const runIds: bigint[] = [];
  const taskIds = new Set<bigint>();
  for (const run of runs) {
    for (const part of run.loaded.output.parts) {
      if (typeof part === "string") continue;
      const { source } = part.reference;
      if (source !== "input") taskIds.add(idOf(run, source.task));
      else if (runIds.at(-1) !== run.runId) runIds.push(run.runId);
    }
  }
  const [inputs, outputs] = await Promise.all([
    runIds.length === 0 ? [] : findInputs(db, { tenantId, runIds }),
    taskIds.size === 0 ? [] : findOutputs(db, { tenantId, taskIds: [...taskIds].sort(ascending) }),
  ]);
  const inputOf = new Map(inputs.map((row) => [row.run_id, row.input.toString("utf8")]));
  const outputOf = new Map(outputs.map((row) => [row.task_id, row.output?.toString("utf8") ?? "null"]));
  return runs.map((run) => {
    const lookup: Lookup = {
      input: () => inputOf.get(run.runId),
      output: (key) => outputOf.get(idOf(run, key)),
    };
    return resolveTemplate(run.loaded.output, lookup);
  });
}

export async function readRunOutput(
  db: Db,
  { tenantId, ...run }: SucceededRun & { tenantId: number },
): Promise<Resolution> {
  return (await readRunOutputs(db, { tenantId, runs: [run] }))[0]!;
}

const idOf = ({ runId, loaded }: SucceededRun, key: string) => toTaskId(runId, loaded.plan.ordinalOf.get(key)!);
const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : 1);

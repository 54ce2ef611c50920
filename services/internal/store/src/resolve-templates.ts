import { taskId as toTaskId } from "@runmesh/domain/ids";
import { type Lookup, type Resolution, resolveTemplate, type Template } from "@runmesh/domain/references";
import { findOutputs } from "./attempts.ts";
import type { Db } from "./db.ts";
import type { LoadedDefinition } from "./definition-cache.ts";
import { findInputs } from "./runs.ts";

/** A template of a run's definition. */
export interface RunTemplate {
  readonly runId: bigint;
  readonly loaded: LoadedDefinition;
  readonly template: Template;
}

/** Puts the inputs and results in that templates refer to, in order; what all of them refer to is read at once. */
export async function resolveTemplates(
  db: Db,
  p: { tenantId: number; items: readonly RunTemplate[] },
): Promise<Resolution[]> {
  const { tenantId, items } = p;
  const runIds = new Set<bigint>();
  const taskIds = new Set<bigint>();
  for (const item of items) {
    for (const part of item.template.parts) {
      if (typeof part === "string") continue;
      const { source } = part.reference;
      if (source === "input") runIds.add(item.runId);
      else taskIds.add(idOf(item, source.task));
    }
  }
  const [inputs, outputs] = await Promise.all([
    runIds.size === 0 ? [] : findInputs(db, { tenantId, runIds: [...runIds] }),
    taskIds.size === 0 ? [] : findOutputs(db, { tenantId, taskIds: [...taskIds].sort(ascending) }),
  ]);
  const inputOf = new Map(inputs.map((row) => [row.run_id, row.input.toString("utf8")]));
  const outputOf = new Map(outputs.map((row) => [row.task_id, row.output?.toString("utf8") ?? "null"]));
  return items.map((item) => {
    const lookup: Lookup = {
      input: () => inputOf.get(item.runId),
      output: (key) => outputOf.get(idOf(item, key)),
    };
    return resolveTemplate(item.template, lookup);
  });
}

const idOf = ({ runId, loaded }: RunTemplate, key: string) => toTaskId(runId, loaded.plan.ordinalOf.get(key)!);
const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : 1);

import { taskId as toTaskId } from "@runmesh/domain/ids";
import { type Lookup, type Resolution, resolveTemplate } from "@runmesh/domain/references";
import { findOutputs } from "./attempts.ts";
import type { Db } from "./db.ts";
import type { LoadedDefinition } from "./definition-cache.ts";
import { findInputs } from "./runs.ts";

/** What a run that SUCCEEDED answers. It is derived from the results that it refers to, so ending a run writes none. */
export async function readRunOutput(
  db: Db,
  p: { tenantId: number; runId: bigint; loaded: LoadedDefinition },
): Promise<Resolution> {
  const { tenantId, runId, loaded } = p;
  const template = loaded.output;
  const wanted = template.isConstant ? [] : template.parts.filter((part) => typeof part !== "string");
  const needsInput = wanted.some(({ reference }) => reference.source === "input");
  const [row] = needsInput ? await findInputs(db, { tenantId, runIds: [runId] }) : [];
  const idOf = (key: string) => toTaskId(runId, loaded.plan.ordinalOf.get(key)!);
  const keys = new Set(
    wanted.flatMap(({ reference }) => (reference.source === "input" ? [] : [reference.source.task])),
  );
  const taskIds = [...keys].map(idOf).sort((a, b) => (a < b ? -1 : 1));
  const outputs = new Map<bigint, string>();
  if (taskIds.length > 0) {
    for (const found of await findOutputs(db, { tenantId, taskIds })) {
      outputs.set(found.task_id, found.output?.toString("utf8") ?? "null");
    }
  }
  const lookup: Lookup = {
    input: () => row?.input.toString("utf8"),
    output: (key) => outputs.get(idOf(key)),
  };
  return resolveTemplate(template, lookup);
}

import { Task_State as State } from "@runmesh/contracts/task/v1/task_pb";
import { ordinalOf, runIdOf, taskId as toTaskId } from "@runmesh/domain/ids";
import { type Lookup, resolveTemplate } from "@runmesh/domain/references";
import { findOutputs } from "@runmesh/store/attempts";
import type { Db } from "@runmesh/store/db";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import { findInputs } from "@runmesh/store/runs";
import type { TaskRow } from "@runmesh/store/task-rows";

/** Longest that is shown, in bytes: with params and output beside it, every client still takes the answer. */
const MAX_SHOWN_BYTES = 1024 * 1024;

/** States of a task that a worker has or may get. */
const MAY_RUN: ReadonlySet<number> = new Set([State.READY, State.LEASED, State.RETRY_WAIT, State.SUSPENDED]);

/**
 * The params that a worker gets or got with this task; undefined where that is not known: a dependency may still
 * answer, a reference found nothing, or no worker ever had the task.
 */
export async function resolveTaskParams(
  db: Db,
  { tenantId, row, loaded }: { tenantId: number; row: TaskRow; loaded: LoadedDefinition },
): Promise<string | undefined> {
  if (row.state === State.BLOCKED || !(MAY_RUN.has(row.state) || row.attempt_count > 0)) return undefined;
  const template = loaded.template(ordinalOf(row.id));
  if (template.isConstant) return template.parts.join("");

  const runId = runIdOf(row.id);
  const idOf = (key: string) => toTaskId(runId, loaded.plan.ordinalOf.get(key)!);
  const taskIds = new Set<bigint>();
  let readsInput = false;
  for (const part of template.parts) {
    if (typeof part === "string") continue;
    const { source } = part.reference;
    if (source === "input") readsInput = true;
    else taskIds.add(idOf(source.task));
  }
  const [inputs, outputs] = await Promise.all([
    readsInput ? findInputs(db, { tenantId, runIds: [runId] }) : [],
    taskIds.size === 0 ? [] : findOutputs(db, { tenantId, taskIds: [...taskIds] }),
  ]);
  const outputOf = new Map(outputs.map(({ task_id, output }) => [task_id, output?.toString("utf8") ?? "null"]));
  const lookup: Lookup = {
    input: () => inputs[0]?.input.toString("utf8"),
    output: (key) => outputOf.get(idOf(key)),
  };
  const resolution = resolveTemplate(template, lookup);
  return resolution.ok && Buffer.byteLength(resolution.text) <= MAX_SHOWN_BYTES ? resolution.text : undefined;
}

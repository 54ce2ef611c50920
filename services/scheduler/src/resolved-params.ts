import { Task_State as State } from "@runmesh/contracts/task/v1/task_pb";
import { ordinalOf, runIdOf } from "@runmesh/domain/ids";
import type { Db } from "@runmesh/store/db";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import { resolveTemplates } from "@runmesh/store/resolve-templates";
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

  const items = [{ runId: runIdOf(row.id), loaded, template }];
  const [resolution] = await resolveTemplates(db, { tenantId, items });
  return resolution!.ok && Buffer.byteLength(resolution!.text) <= MAX_SHOWN_BYTES ? resolution!.text : undefined;
}

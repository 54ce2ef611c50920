import { taskId } from "@runmesh/domain/ids";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";

/** Ids of a run's tasks by their keys, ascending and without repeats. Keys the definition does not have are left out. */
export function toTaskIds(loaded: LoadedDefinition, runId: bigint, keys: readonly string[]): bigint[] {
  const ordinals = new Set<number>();
  for (const key of keys) {
    const ordinal = loaded.plan.ordinalOf.get(key);
    if (ordinal !== undefined) ordinals.add(ordinal);
  }
  return [...ordinals].sort((a, b) => a - b).map((ordinal) => taskId(runId, ordinal));
}

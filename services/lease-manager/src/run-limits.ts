import { ordinalOf, runIdOf } from "@runmesh/domain/ids";
import type { Db } from "@runmesh/store/db";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import { limitsOf, needsInput, readInput, resolveKey, type TaskLimits } from "@runmesh/store/limits";
import { LRUCache } from "lru-cache";

/** Keys that are remembered, at most 1 KiB each. */
const MAX_KEYS = 20_000;

/** The limits of tasks. A key that comes from the run's input, which never changes, is worked out once. */
export class RunLimits {
  readonly #db: Db;
  /** By tenant, run and the key as the definition has it. */
  readonly #keys = new LRUCache<string, string>({ max: MAX_KEYS });

  constructor(db: Db) {
    this.#db = db;
  }

  /** Of tasks of one run, in order. */
  async of(tenantId: number, loaded: LoadedDefinition, taskIds: readonly bigint[]): Promise<readonly TaskLimits[]> {
    const templates = taskIds
      .filter((taskId) => needsInput(loaded, taskId))
      .map((taskId) => templateOf(loaded, taskId));
    const keys = await this.#resolve(tenantId, taskIds[0], new Set(templates));
    return taskIds.map((taskId) => ({
      ...limitsOf(loaded, taskId),
      ...(needsInput(loaded, taskId) ? { key: keys.get(templateOf(loaded, taskId))! } : {}),
    }));
  }

  async #resolve(
    tenantId: number,
    taskId: bigint | undefined,
    templates: ReadonlySet<string>,
  ): Promise<ReadonlyMap<string, string>> {
    const keys = new Map<string, string>();
    if (taskId === undefined || templates.size === 0) return keys;
    const runId = runIdOf(taskId);
    let input: { text: string | undefined } | undefined;
    for (const template of templates) {
      const name = `${tenantId}/${runId}/${template}`;
      let key = this.#keys.get(name);
      if (key === undefined) {
        input ??= { text: await readInput(this.#db, tenantId, runId) };
        key = resolveKey(template, input.text);
        this.#keys.set(name, key);
      }
      keys.set(template, key);
    }
    return keys;
  }
}

const templateOf = ({ definition }: LoadedDefinition, taskId: bigint): string =>
  definition.tasks[ordinalOf(taskId)]!.concurrency!.key;

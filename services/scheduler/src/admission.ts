import { runIdOf } from "@runmesh/domain/ids";
import type { Log } from "@runmesh/platform/log";
import { createLoop, type Loop } from "@runmesh/platform/loop";
import type { Wakeups } from "@runmesh/platform/wakeup";
import { admit } from "@runmesh/store/admit";
import { admitRuns } from "@runmesh/store/begin-run";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { placeDueLimited } from "@runmesh/store/place-due";
import { listDueLimited } from "@runmesh/store/places";
import { removeIdleCounts } from "@runmesh/store/slot-counts";
import { listWaitingKeys, listWaitingRunKeys, type WaitingKey } from "@runmesh/store/waiting-keys";
import { Resting } from "./resting.ts";

const BATCH = 200;
/** What could not be admitted is looked at again then. */
const FAULT_REST_MS = 2_000;
/** Rows of keys that nobody uses are looked for so often, and removed so many at a time. */
const IDLE_LOOK_MS = 60_000;
const IDLE_BATCH = 1_000;

/**
 * Brings due tasks before their limits, and comes back to what an admission had to pass over because another held a
 * lock. A slot that is freed is passed on in the transaction that frees it: this is the net below it. It also forgets the
 * counts of limits that nobody uses any more. Each run and each key goes alone: one that fails holds up no other.
 */
export function createAdmission(deps: { db: Db; definitions: DefinitionCache; wakeups: Wakeups; log: Log }): Loop {
  const { db, definitions, wakeups, log } = deps;
  const restingRuns = new Resting<bigint>();
  const restingKeys = new KeysAtRest();
  const restingRunKeys = new KeysAtRest();
  let lookedForIdleAt = Number.NEGATIVE_INFINITY;

  async function admitAlone(
    admitting: () => Promise<ReadonlySet<number>>,
    rest: () => void,
    named: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    try {
      for (const route of await admitting()) wakeups.notify(`ready:${route}`);
    } catch (error) {
      rest();
      log.error({ ...named, error }, "what waits for a limit could not be admitted; it will be tried again");
    }
  }

  return createLoop({
    name: "admission",
    intervalMs: 200,
    log,
    async runOnce(signal) {
      const due = await listDueLimited(db, { limit: BATCH, exceptRunIds: restingRuns.list() });
      for (const [runId, tasks] of Map.groupBy(due, (task) => runIdOf(task.task_id))) {
        if (signal.aborted) return { again: false };
        const tenantId = tasks[0]!.tenant_id;
        const taskIds = tasks.map((task) => task.task_id);
        const rest = () => restingRuns.add(runId, FAULT_REST_MS);
        await admitAlone(() => placeDueLimited(deps, { tenantId, taskIds }), rest, { tenantId, runId });
      }
      for (const waiting of await listWaitingKeys(db, { limit: BATCH, except: restingKeys.list() })) {
        if (signal.aborted) return { again: false };
        const { tenant_id: tenantId, key } = waiting;
        const admitting = () => db.transaction((tx) => admit(tx, { tenantId, keys: [key] }));
        await admitAlone(admitting, () => restingKeys.add(waiting), { tenantId, key });
      }
      for (const waiting of await listWaitingRunKeys(db, { limit: BATCH, except: restingRunKeys.list() })) {
        if (signal.aborted) return { again: false };
        const { tenant_id: tenantId, key } = waiting;
        const admitting = () => db.transaction((tx) => admitRuns(tx, definitions, { tenantId, keys: [key] }));
        await admitAlone(admitting, () => restingRunKeys.add(waiting), { tenantId, key });
        wakeups.notify("outbox");
      }
      if (performance.now() - lookedForIdleAt >= IDLE_LOOK_MS) {
        const removed = await removeIdleCounts(db, { limit: IDLE_BATCH });
        if (removed < IDLE_BATCH) lookedForIdleAt = performance.now();
      }
      return { again: due.length === BATCH };
    },
  });
}

class KeysAtRest {
  readonly #resting = new Resting<string>();

  add(waiting: WaitingKey): void {
    this.#resting.add(JSON.stringify(waiting), FAULT_REST_MS);
  }

  list(): WaitingKey[] {
    return this.#resting.list().map((text) => JSON.parse(text) as WaitingKey);
  }
}

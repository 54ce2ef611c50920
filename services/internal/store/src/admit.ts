import { runIdOf } from "@runmesh/domain/ids";
import type { Db } from "./db.ts";
import { runSlotKey, slotKey } from "./limits.ts";
import { lockKeys, recountSlots } from "./slot-counts.ts";
import { admitTasks, type Candidate, countSlots, listCandidates, listRunCandidates, setHeldReason } from "./slots.ts";

/** Held tasks looked at for one key, and for all keys of one admission. */
const MAX_CANDIDATES = 200;
const MAX_CANDIDATES_IN_ALL = 5_000;
const MIN_CANDIDATES = 10;

/**
 * Admits held tasks for which there is a slot, best first, in the transaction that freed it or placed them. Invariants:
 *   1. Slots of a key are counted and taken under the lock of its row, so there are never more than its limit, and the
 *      row is set right before the transaction ends (slot-counts.ts).
 *   2. Keys are the last locks of a transaction and are taken in one order; a second key that a candidate needs is only
 *      tried, and a held row only taken when nobody holds it (SKIP LOCKED): admission waits for nobody further.
 *   3. What was passed over because of 2 is admitted by the next that frees a slot, or by the scheduler's loop.
 * Answers the routes that have new ready tasks.
 */
export async function admit(tx: Db, p: { tenantId: number; keys: Iterable<string> }): Promise<ReadonlySet<number>> {
  const { tenantId } = p;
  const keys = [...new Set(p.keys)];
  const routes = new Set<number>();
  if (keys.length === 0) return routes;
  const locked = new Set(await lockKeys(tx, { tenantId, keys, mayWait: true }));
  const used = await countSlots(tx, { tenantId, keys });
  const candidates = await findCandidates(tx, tenantId, keys);
  await lockOthers(tx, tenantId, candidates, locked, used);
  const { admitted, refused } = choose(candidates, locked, used);
  if (admitted.length > 0) {
    const slots = admitted.flatMap((task) =>
      keysOf(task).map(({ key: slot }) => ({ key: slot, taskId: task.task_id })),
    );
    const taskIds = admitted.map((task) => task.task_id);
    for (const row of await admitTasks(tx, { tenantId, taskIds, slots })) routes.add(row.route_id);
  }
  for (const [reason, taskIds] of refused) await setHeldReason(tx, { tenantId, taskIds, reason });
  await recountSlots(tx, { tenantId, keys: [...locked] });
  return routes;
}

/** Each once, though it may wait for two of the keys. */
async function findCandidates(tx: Db, tenantId: number, keys: readonly string[]): Promise<Candidate[]> {
  const limit = Math.max(MIN_CANDIDATES, Math.min(MAX_CANDIDATES, Math.ceil(MAX_CANDIDATES_IN_ALL / keys.length)));
  const named = keys.filter((key) => key.startsWith("k:")).map((key) => key.slice(2));
  const runIds = keys.filter((key) => key.startsWith("r:")).map((key) => BigInt(key.slice(2)));
  const found = [
    ...(named.length === 0 ? [] : await listCandidates(tx, { tenantId, keys: named, limit })),
    ...(runIds.length === 0 ? [] : await listRunCandidates(tx, { tenantId, runIds, limit })),
  ];
  return [...new Map(found.map((task) => [task.task_id, task])).values()];
}

/** The slots that a task needs, each with its limit. */
function keysOf(task: Candidate): { key: string; most: number; reason: number }[] {
  const keys = [];
  if (task.concurrency_key !== null)
    keys.push({ key: slotKey(task.concurrency_key), most: task.slot_limit, reason: 2 });
  if (task.run_limit > 0) keys.push({ key: runSlotKey(runIdOf(task.task_id)), most: task.run_limit, reason: 3 });
  return keys;
}

async function lockOthers(
  tx: Db,
  tenantId: number,
  candidates: readonly Candidate[],
  locked: Set<string>,
  used: Map<string, number>,
): Promise<void> {
  const others = new Set(candidates.flatMap(keysOf).map(({ key }) => key));
  const missing = [...others].filter((key) => !locked.has(key));
  if (missing.length === 0) return;
  const had = await lockKeys(tx, { tenantId, keys: missing, mayWait: false });
  for (const key of had) locked.add(key);
  for (const [key, count] of await countSlots(tx, { tenantId, keys: had })) used.set(key, count);
}

/** Takes the best while there are slots, and says of the others which limit stands in their way. */
function choose(candidates: readonly Candidate[], locked: ReadonlySet<string>, used: Map<string, number>) {
  const admitted: Candidate[] = [];
  const refused = new Map<number, bigint[]>();
  for (const task of candidates) {
    const keys = keysOf(task);
    const full = keys.find(({ key, most }) => !locked.has(key) || (used.get(key) ?? 0) >= most);
    if (full === undefined) {
      admitted.push(task);
      for (const { key } of keys) used.set(key, (used.get(key) ?? 0) + 1);
    } else {
      refused.set(full.reason, [...(refused.get(full.reason) ?? []), task.task_id]);
    }
  }
  return { admitted, refused };
}

import type { Db } from "./db.ts";

/** Tables that are partitioned by the run they belong to; the runs themselves first. */
const TABLES: readonly string[] = ["run", "task", "attempt", "attempt_log", "step", "run_event", "signal"];

/** A partition holds 2^18 run ids. */
const SLOT_BITS = 18n;

export interface PartitionTable {
  readonly parent: string;
  readonly name: string;
  /** Still part of its parent. */
  readonly attached: boolean;
  /** Its detaching was cut off and is to be finished. */
  readonly detaching: boolean;
}

/** The tables of one range of run ids, those that a drop that was cut off has left included. */
export interface Slot {
  readonly low: bigint;
  readonly high: bigint;
  readonly tables: readonly PartitionTable[];
}

/** Every range of run ids that has tables, ascending. */
export async function listSlots(db: Db): Promise<Slot[]> {
  const rows = await db.rows<{ slot: bigint } & PartitionTable>(
    "list_slots",
    `
  SELECT substring(child.relname FROM '_p([0-9]+)$')::bigint AS slot,
    substring(child.relname FROM '^(.*)_p[0-9]+$') AS parent,
    child.relname AS name, child.relispartition AS attached,
    coalesce(pg_inherits.inhdetachpending, false) AS detaching
  FROM pg_class AS child
  LEFT JOIN pg_inherits ON pg_inherits.inhrelid = child.oid
  WHERE child.relkind = 'r' AND child.relname ~ '^(${TABLES.join("|")})_p[0-9]+$'
    AND child.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'run'::regclass)`,
    [],
  );
  const slots = Map.groupBy(rows, (row) => row.slot);
  return [...slots.keys()]
    .sort((a, b) => (a < b ? -1 : 1))
    .map((slot) => ({
      low: slot << SLOT_BITS,
      high: (slot + 1n) << SLOT_BITS,
      tables: slots.get(slot)!.toSorted((a, b) => TABLES.indexOf(a.parent) - TABLES.indexOf(b.parent)),
    }));
}

/**
 * Empties the runs of a range at once, unless `mayEmpty` finds one to be kept. It is asked under a lock that keeps every
 * move of these runs out, so none is reopened in between. False where it was not emptied.
 */
export function emptyRuns(db: Db, slot: Slot, mayEmpty: (tx: Db) => Promise<boolean>): Promise<boolean> {
  const runs = slot.tables.find((table) => table.parent === "run" && table.attached);
  if (runs === undefined) return Promise.resolve(true);
  return db.transaction(async (tx) => {
    // Whoever waits for this lock holds up those that come after it: better to try again later.
    await tx.rows("", "SET LOCAL lock_timeout = '2s'", []);
    await tx.rows("", `LOCK TABLE ${runs.name} IN ACCESS EXCLUSIVE MODE`, []);
    if (!(await mayEmpty(tx))) return false;
    await tx.rows("", `TRUNCATE ${runs.name}`, []);
    await tx.rows("", "DELETE FROM removed_run WHERE run_id >= $1 AND run_id < $2", [slot.low, slot.high]);
    return true;
  });
}

/**
 * Drops one table of a range whose runs are gone. Detaching does not lock the parent against reads and writes, but waits
 * for transactions that still read it; what it did not reach is finished the next time.
 */
export async function dropPartition(db: Db, { parent, name, attached, detaching }: PartitionTable): Promise<void> {
  if (attached) {
    const how = detaching ? "FINALIZE" : "CONCURRENTLY";
    await db.rows("", `ALTER TABLE ${parent} DETACH PARTITION ${name} ${how}`, []);
  }
  await db.rows("", `DROP TABLE ${name}`, []);
}

import type { Db } from "./db.ts";

/** A right that one process has at a time. The fence rises with each owner, so that a late one writes nothing. */
export interface Duty {
  readonly name: string;
  readonly owner: string;
  readonly fence: bigint;
}

/** Takes or keeps a duty; nothing while another has it. */
export async function holdDuty(db: Db, p: { name: string; owner: string; ttlMs: number }): Promise<Duty | undefined> {
  const row = await db.find<{ fence: bigint }>(
    "hold_duty",
    `
  INSERT INTO duty (name, owner, fence, expires_at)
  VALUES ($1, $2, 1, clock_timestamp() + $3 * interval '1 ms')
  ON CONFLICT (name) DO UPDATE
  SET owner = excluded.owner,
    fence = CASE WHEN duty.owner = excluded.owner THEN duty.fence ELSE duty.fence + 1 END,
    expires_at = clock_timestamp() + $3 * interval '1 ms'
  WHERE duty.owner = excluded.owner OR duty.expires_at <= clock_timestamp()
  RETURNING fence`,
    [p.name, p.owner, p.ttlMs],
  );
  return row && { name: p.name, owner: p.owner, fence: row.fence };
}

/** Gives a duty up, so that another need not wait for its end. */
export const leaveDuty = (db: Db, { name, owner }: Duty) =>
  db.rows(
    "leave_duty",
    `
  UPDATE duty SET expires_at = '-infinity'
  WHERE name = $1 AND owner = $2`,
    [name, owner],
  );

/** A condition that holds while the duty does: for the statements that it allows, over three parameters from `first`. */
export const holdsDuty = (first: number) =>
  `EXISTS (SELECT FROM duty
      WHERE duty.name = $${first} AND duty.owner = $${first + 1} AND duty.fence = $${first + 2}
        AND duty.expires_at > clock_timestamp())`;

export const dutyParams = ({ name, owner, fence }: Duty) => [name, owner, fence];

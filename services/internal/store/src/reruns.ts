import type { Db } from "./db.ts";

/** Links a run to the one that it repeats, in the transaction that starts it. */
export const setRerunOf = (db: Db, p: { tenantId: number; runId: bigint; rerunOf: bigint }) =>
  db.rows(
    "set_rerun_of",
    `
  UPDATE run SET rerun_of = $3
  WHERE tenant_id = $1 AND id = $2`,
    [p.tenantId, p.runId, p.rerunOf],
  );

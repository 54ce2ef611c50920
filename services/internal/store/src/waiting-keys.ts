import { int4Array, textArray } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

/** Of a tenant's limit: where somebody waits though there is room, as an admission had to pass it over. */
export interface WaitingKey {
  tenant_id: number;
  key: string;
}

interface Asked {
  readonly limit: number;
  readonly except: readonly WaitingKey[];
}

const pack = ({ limit, except }: Asked) => [
  limit,
  int4Array(except.map((of) => of.tenant_id)),
  textArray(except.map(({ key }) => key)),
];

/** Keys by which tasks can be admitted that wait though there is room: what an admission had to pass over. Of every tenant. */
export const listWaitingKeys = (db: Db, p: Asked) =>
  db.rows<WaitingKey>(
    "list_waiting_keys",
    `
  SELECT DISTINCT tenant_id, named.key
  FROM held
  CROSS JOIN LATERAL (SELECT 'k:' || concurrency_key AS key, 'r:' || (task_id >> 20) AS run_key) AS own
  CROSS JOIN LATERAL (SELECT CASE WHEN slot_limit > 0 THEN own.key ELSE own.run_key END AS key) AS named
  WHERE reason IN (2, 3) AND (tenant_id, named.key) NOT IN (SELECT unnest($2::int[]), unnest($3::text[]))
    AND (slot_limit = 0 OR slot_limit > coalesce((
      SELECT used FROM slot_count WHERE slot_count.tenant_id = held.tenant_id AND slot_count.key = own.key), 0))
    AND (run_limit = 0 OR run_limit > coalesce((
      SELECT used FROM slot_count WHERE slot_count.tenant_id = held.tenant_id AND slot_count.key = own.run_key), 0))
  LIMIT $1`,
    pack(p),
  );

/** Keys with a run that may begin, as the limit has room, of every tenant: what an admission had to pass over. */
export const listWaitingRunKeys = (db: Db, p: Asked) =>
  db.rows<WaitingKey>(
    "list_waiting_run_keys",
    `
  SELECT tenant_id, key
  FROM (
    SELECT tenant_id, key, max(slot_limit) AS most FROM run_slot
    WHERE NOT active AND due_at IS NULL
    GROUP BY tenant_id, key
  ) AS waiting
  WHERE (tenant_id, key) NOT IN (SELECT unnest($2::int[]), unnest($3::text[]))
    AND most > coalesce((
      SELECT used FROM slot_count
      WHERE slot_count.tenant_id = waiting.tenant_id AND slot_count.key = 'w:' || waiting.key), 0)
  LIMIT $1`,
    pack(p),
  );

import { READY_UNBLOCKED, UNBLOCK, WOKEN_ROUTES, writeCompletion } from "./complete-text.ts";
import { PLACE_OPENED, settleSlots, wantedBy } from "./slot-counts.ts";

/** What nothing but its limits holds up. */
const OPENED = `
  opened AS MATERIALIZED (
    SELECT id AS task_id, ($16::int[])[place] AS route_id, ($17::smallint[])[place] AS rank,
      ($19::text[])[($18::int[])[place]] AS key, ($20::int[])[place] AS slot_limit, ($21::int[])[place] AS run_limit
    FROM (
      SELECT id, width_bucket(id, $15::bigint[]) AS place FROM unblocked WHERE pending = 0 AND state = 0
    ) AS open
  )`;

/** `alone` passes over what is busy; `in_transaction` leaves it to its caller to admit. */
export type Form = "alone" | "in_transaction";

interface Variant {
  readonly form: Form;
  readonly hasDependents: boolean;
  readonly hasSlots: boolean;
  readonly sharesLimits: boolean;
  readonly oneEach: boolean;
  readonly mayWait: boolean;
}

const LEFT_LIMITS = `
  left_limits AS (
    DELETE FROM run_slot
    WHERE tenant_id + 0 = $1 AND run_id = ANY (ARRAY(SELECT run_id FROM done WHERE ends_as > 0))
    RETURNING key, active
  ),`;

/** The sum hides the keys of slots, which begin with the tenant, so that they are found by their task or run. */
const LEFT_SLOTS = `
  dropped AS (
    DELETE FROM slot
    WHERE tenant_id + 0 = $1 AND task_id = ANY (ARRAY(SELECT task_id FROM done))
    RETURNING key
  ),`;

function placing({ hasDependents, hasSlots, sharesLimits }: Variant): string {
  const asked: string[] = [];
  if (hasSlots) asked.push("SELECT key, 1, NULL::bigint, NULL::int FROM dropped");
  if (sharesLimits) asked.push("SELECT 'w:' || key, active::int, NULL::bigint, NULL::int FROM left_limits");
  if (hasSlots && hasDependents) asked.push(wantedBy("opened").trim());
  const settle = settleSlots(`
      ${asked.join("\n      UNION ALL\n      ")}`);
  const left = `${hasSlots ? LEFT_SLOTS : ""}${sharesLimits ? LEFT_LIMITS : ""}`;
  if (!hasDependents) return `${left}${settle},`;
  return hasSlots
    ? `${UNBLOCK}, ${OPENED},${left}${settle},${PLACE_OPENED},`
    : `${UNBLOCK}, woken AS (${READY_UNBLOCKED}),${left}${settle},`;
}

/** Items whose slots others wait for: their own, and that of their run. */
const busy = ({ hasSlots, sharesLimits }: Variant): string => `
  busy AS MATERIALIZED (
    SELECT array_agg(DISTINCT task_id ORDER BY task_id) AS ids
    FROM (${[...(hasSlots ? [BUSY_TASKS] : []), ...(sharesLimits ? [BUSY_RUNS] : [])].join(`
      UNION ALL`)}
    ) AS found
  ),`;

const BUSY_TASKS = `
      SELECT slot.task_id
      FROM slot
      CROSS JOIN LATERAL (
        SELECT waits FROM slot_count WHERE tenant_id = $1 AND key = slot.key AND waits OFFSET 0
      ) AS known
      WHERE slot.tenant_id + 0 = $1 AND slot.task_id = ANY ($2::bigint[])`;

const BUSY_RUNS = `
      SELECT named.task_id
      FROM unnest($2::bigint[]) AS named (task_id)
      CROSS JOIN LATERAL (
        SELECT key FROM run_slot WHERE tenant_id + 0 = $1 AND run_id = named.task_id >> 20 OFFSET 0
      ) AS own
      CROSS JOIN LATERAL (
        SELECT waits FROM slot_count WHERE tenant_id = $1 AND key = 'w:' || own.key AND waits OFFSET 0
      ) AS known`;

const IS_NOT_BUSY = `
      AND NOT coalesce(((SELECT ids FROM busy))[width_bucket(task_id, (SELECT ids FROM busy))] = task_id, false)`;

const texts = new Map<string, string>();

export function completeLimitedStatement(variant: Variant): { readonly name: string; readonly text: string } {
  const { form, hasDependents, hasSlots, sharesLimits, oneEach, mayWait } = variant;
  const parts = { next: hasDependents, slots: hasSlots, runs: sharesLimits, one_each: oneEach, wait: mayWait };
  const name = ["complete", form, ...Object.entries(parts).flatMap(([part, is]) => (is ? [part] : []))].join("_");
  let text = texts.get(name);
  if (text === undefined) {
    text = writeText(variant);
    texts.set(name, text);
  }
  return { name, text };
}

function writeText(variant: Variant): string {
  const { form, hasDependents, oneEach, mayWait } = variant;
  const isAlone = form === "alone";
  return writeCompletion({
    oneEach,
    mayWait,
    ...(isAlone && { looking: busy(variant), onlyIf: IS_NOT_BUSY }),
    placing: placing(variant),
    answers: `${hasDependents ? WOKEN_ROUTES : "NULL::text AS woken_routes"},
    (SELECT keys FROM contended) AS contended, (SELECT ids FROM refused)::text AS refused,
    ${isAlone ? "(SELECT ids FROM busy)::text" : "NULL::text"} AS busy`,
  });
}

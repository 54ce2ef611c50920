import type { Db } from "./db.ts";

/** A broken invariant of the state. */
export interface Finding {
  readonly check: string;
  readonly severity: "error" | "warning";
  readonly count: number;
  /** At most five, as people would name them. */
  readonly examples: string[];
  readonly advice: string;
}

export type Check = (db: Db) => Promise<Finding | undefined>;

interface Invariant {
  readonly check: string;
  readonly severity?: "error" | "warning";
  readonly advice: string;
  /** Rows that break it, each with its name as `example`. */
  readonly broken: string;
}

/** A check that finds what breaks an invariant. */
export const check = ({ check, severity = "error", advice, broken }: Invariant): Check => {
  const text = `
  SELECT count(*)::int AS count, coalesce((array_agg(example))[1:5], '{}') AS examples
  FROM (${broken}) AS broken (example)`;
  return async (db) => {
    const { count, examples } = await db.one<{ count: number; examples: string[] }>("", text, []);
    return count === 0 ? undefined : { check, severity, count, examples, advice };
  };
};

/** Where an open task may stand. */
export const PLACES = `
    SELECT tenant_id, task_id FROM suspended
    UNION ALL SELECT tenant_id, task_id FROM held
    UNION ALL SELECT tenant_id, task_id FROM scheduled
    UNION ALL SELECT tenant_id, task_id FROM ready
    UNION ALL SELECT tenant_id, task_id FROM lease`;

/** Whether a task of the surrounding statement has its result. */
export const SUCCEEDED = `EXISTS (
      SELECT FROM attempt
      WHERE attempt.tenant_id = task.tenant_id AND attempt.task_id = task.id AND attempt.outcome = 1
    )`;

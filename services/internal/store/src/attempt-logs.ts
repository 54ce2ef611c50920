import { byteaArray, int2Array, int8Array } from "./binary-parameters.ts";
import type { Db } from "./db.ts";

/** Most bytes of log that an attempt keeps; then a mark. */
const MAX_LOG_BYTES = 1024 * 1024;

export interface NewLogLine {
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly at: Date;
  readonly level: number;
  readonly message: Buffer;
}

/**
 * Appends lines to the logs of leases that the session holds (fenced), up to 1 MiB an attempt; the line that would go
 * over is replaced by a mark, and what follows is dropped. Lines of a lease that has ended are dropped too: those that
 * come with its end are appended before it.
 */
export const appendLogs = (db: Db, p: { tenantId: number; sessionId: bigint; lines: readonly NewLogLine[] }) =>
  db.rows(
    "append_logs",
    `
  INSERT INTO attempt_log (tenant_id, task_id, fence, line, at, level, message)
  SELECT $1, line.task_id, line.fence, line.seen + line.n, line.at, line.level,
    CASE WHEN line.kept + line.running > $8 THEN '[log is full: later lines are dropped]'::bytea ELSE line.message END
  FROM (
    SELECT given.task_id, given.fence, given.at, given.level, given.message, kept.seen, kept.bytes AS kept,
      (row_number() OVER by_lease)::int AS n,
      sum(octet_length(given.message)) OVER by_lease AS running,
      octet_length(given.message) AS size
    FROM unnest($3::bigint[], $4::bigint[], $5::timestamptz[], $6::smallint[], $7::bytea[])
      WITH ORDINALITY AS given (task_id, fence, at, level, message, place)
    CROSS JOIN LATERAL (
      SELECT coalesce(max(line), 0) AS seen, coalesce(sum(octet_length(message)), 0) AS bytes FROM attempt_log
      WHERE tenant_id = $1 AND task_id = given.task_id AND fence = given.fence
    ) AS kept
    WHERE EXISTS (
      SELECT FROM lease
      WHERE lease.tenant_id = $1 AND lease.task_id = given.task_id AND lease.fence = given.fence
        AND lease.session_id = $2
    )
    WINDOW by_lease AS (PARTITION BY given.task_id, given.fence ORDER BY given.place)
  ) AS line
  WHERE line.kept + line.running - line.size <= $8
  ON CONFLICT DO NOTHING`,
    [
      p.tenantId,
      p.sessionId,
      int8Array(p.lines.map((line) => line.taskId)),
      int8Array(p.lines.map((line) => line.fence)),
      p.lines.map((line) => line.at),
      int2Array(p.lines.map((line) => line.level)),
      byteaArray(p.lines.map((line) => line.message)),
      MAX_LOG_BYTES,
    ],
  );

export interface LogRow {
  fence: bigint;
  line: number;
  number: number;
  at: Date;
  level: number;
  message: Buffer;
}

/** The log of a task after a key (fence, line), oldest first. `number` is the attempt's; 0 asks for all. */
export const listLogs = (
  db: Db,
  p: { tenantId: number; taskId: bigint; number: number; afterFence: bigint; afterLine: number; limit: number },
) =>
  db.rows<LogRow>(
    "list_logs",
    `
  SELECT log.fence, log.line, log.at, log.level, log.message, coalesce(attempt.number, lease.attempt, 0) AS number
  FROM attempt_log AS log
  LEFT JOIN attempt ON attempt.tenant_id = $1 AND attempt.task_id = $2 AND attempt.fence = log.fence
  LEFT JOIN lease ON lease.tenant_id = $1 AND lease.task_id = $2 AND lease.fence = log.fence
  WHERE log.tenant_id = $1 AND log.task_id = $2 AND (log.fence, log.line) > ($4, $5)
    AND ($3 = 0 OR coalesce(attempt.number, lease.attempt) = $3)
  ORDER BY log.fence, log.line
  LIMIT $6`,
    [p.tenantId, p.taskId, p.number, p.afterFence, p.afterLine, p.limit],
  );

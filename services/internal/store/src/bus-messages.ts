import type { Db } from "./db.ts";

/** Makes a named subscription. From here on it keeps what is published. */
export const addSubscription = (db: Db, p: { name: string }) =>
  db.rows(
    "add_subscription",
    `
  INSERT INTO bus_subscription (name) VALUES ($1)
  ON CONFLICT (name) DO NOTHING`,
    [p.name],
  );

/** Ends a named subscription, with the messages it kept. */
export const removeSubscription = (db: Db, p: { name: string }) =>
  db.rows("remove_subscription", "DELETE FROM bus_subscription WHERE name = $1", [p.name]);

/** Every subscription with the messages it keeps, counted up to one above `limit`. */
export const listSubscriptions = (db: Db, p: { limit: number }) =>
  db.rows<{ name: string; count: number }>(
    "list_subscriptions",
    `
  SELECT bus_subscription.name, kept.count
  FROM bus_subscription
  CROSS JOIN LATERAL (
    SELECT count(*)::int AS count
    FROM (SELECT FROM bus_message WHERE bus_message.subscription = bus_subscription.name LIMIT $1 + 1) AS capped
    OFFSET 0
  ) AS kept
  ORDER BY bus_subscription.name`,
    [p.limit],
  );

/**
 * Gives the messages to every subscription, in the order given. One that a subscription still has is not added again.
 * `bodies` holds them end to end, `ends` where each one ends.
 */
export const addMessages = (
  db: Db,
  p: { runIds: readonly bigint[]; eventIds: readonly string[]; ends: readonly number[]; bodies: Buffer },
) =>
  db.rows(
    "add_messages",
    `
  INSERT INTO bus_message (subscription, run_id, event_id, body)
  SELECT bus_subscription.name, m.run_id, m.event_id,
    substring($4::bytea FROM coalesce(($3::int[])[m.n - 1], 0) + 1 FOR m.ends_at - coalesce(($3::int[])[m.n - 1], 0))
  FROM bus_subscription
  CROSS JOIN unnest($1::bigint[], $2::text[], $3::int[]) WITH ORDINALITY AS m (run_id, event_id, ends_at, n)
  ORDER BY bus_subscription.name, m.n
  ON CONFLICT (subscription, event_id) DO NOTHING`,
    [p.runIds, p.eventIds, p.ends, p.bodies],
  );

export interface MessageRow {
  id: bigint;
  run_id: bigint;
  event_id: string;
  body: Buffer;
  /** Deliveries that failed. */
  deliveries: number;
}

/** The first messages of a subscription, but those of the runs named. */
export const listMessages = (db: Db, p: { subscription: string; exceptRunIds: readonly bigint[]; limit: number }) =>
  db.rows<MessageRow>(
    "list_messages",
    `
  SELECT id, run_id, event_id, body, deliveries
  FROM bus_message
  WHERE subscription = $1 AND parked_at IS NULL AND run_id <> ALL ($2::bigint[])
  ORDER BY id
  LIMIT $3`,
    [p.subscription, p.exceptRunIds, p.limit],
  );

/** Drops what was delivered. */
export const removeMessages = (db: Db, p: { subscription: string; ids: readonly bigint[] }) =>
  db.rows(
    "remove_messages",
    `
  DELETE FROM bus_message
  WHERE subscription = $1 AND id = ANY ($2::bigint[])`,
    [p.subscription, p.ids],
  );

/** Counts a failed delivery and answers how many there were. */
export const countDelivery = (db: Db, p: { subscription: string; id: bigint }) =>
  db.find<{ deliveries: number }>(
    "count_delivery",
    `
  UPDATE bus_message
  SET deliveries = deliveries + 1
  WHERE subscription = $1 AND id = $2
  RETURNING deliveries`,
    [p.subscription, p.id],
  );

/** Sets a message aside with those of its run that stand behind it. */
export const parkMessages = (db: Db, p: { subscription: string; runId: bigint; fromId: bigint }) =>
  db.rows(
    "park_messages",
    `
  UPDATE bus_message
  SET parked_at = clock_timestamp()
  WHERE subscription = $1 AND run_id = $2 AND id >= $3 AND parked_at IS NULL`,
    [p.subscription, p.runId, p.fromId],
  );

/** Lets a run's parked messages be delivered again, with a new count. */
export const unparkMessages = (db: Db, p: { subscription: string; runId: bigint }) =>
  db.rows<{ id: bigint }>(
    "unpark_messages",
    `
  UPDATE bus_message
  SET parked_at = NULL, deliveries = 0
  WHERE subscription = $1 AND run_id = $2 AND parked_at IS NOT NULL
  RETURNING id`,
    [p.subscription, p.runId],
  );

export const listParkedMessageRuns = (db: Db, p: { subscription: string; limit: number }) =>
  db.rows<{ run_id: bigint }>(
    "list_parked_message_runs",
    `
  SELECT DISTINCT run_id
  FROM bus_message
  WHERE subscription = $1 AND parked_at IS NOT NULL
  ORDER BY run_id
  LIMIT $2`,
    [p.subscription, p.limit],
  );

/**
 * Takes or keeps the right to deliver a subscription's messages, which one process has at a time. Answers nothing
 * while another has it.
 */
export const holdSubscription = (db: Db, p: { subscription: string; owner: string; ttlMs: number }) =>
  db.find<{ fence: bigint }>(
    "hold_subscription",
    `
  INSERT INTO duty (name, owner, fence, expires_at)
  VALUES ('subscription:' || $1, $2, 1, clock_timestamp() + make_interval(secs => $3::float8 / 1000))
  ON CONFLICT (name) DO UPDATE
  SET owner = excluded.owner,
    fence = CASE WHEN duty.owner = excluded.owner THEN duty.fence ELSE duty.fence + 1 END,
    expires_at = clock_timestamp() + make_interval(secs => $3::float8 / 1000)
  WHERE duty.owner = excluded.owner OR duty.expires_at <= clock_timestamp()
  RETURNING fence`,
    [p.subscription, p.owner, p.ttlMs],
  );

/** Gives the right up, for a process that stops. */
export const leaveSubscription = (db: Db, p: { subscription: string; owner: string }) =>
  db.rows(
    "leave_subscription",
    `
  UPDATE duty SET expires_at = '-infinity'
  WHERE name = 'subscription:' || $1 AND owner = $2`,
    [p.subscription, p.owner],
  );

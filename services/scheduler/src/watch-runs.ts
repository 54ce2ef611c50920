import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { HeartbeatSchema, RunLeft_Cause } from "@runmesh/contracts/run/v1/run_pb";
import type { WatchRunsRequest, WatchRunsResponseSchema } from "@runmesh/contracts/run/v1/run_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { readPageSize } from "@runmesh/platform/page-size";
import { type Wakeups, waitForWakeup } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { listRuns, type RunFilter, type RunKey } from "@runmesh/store/list-runs";
import { listRunKeyPage } from "@runmesh/store/run-pages";
import { findRun, type RunRow } from "@runmesh/store/runs";
import { readFilter } from "./run-filter.ts";
import { writeRun } from "./run-message.ts";

interface Deps {
  readonly db: Db;
  readonly wakeups: Wakeups;
}

type Message = MessageInitShape<typeof WatchRunsResponseSchema>;

/** Runs that are read, and told of in a snapshot, at a time. */
const PART = 100;
const MAX_KNOWN = 1_000;
const HEARTBEAT_MS = 10_000;
/** Hints of other processes do not come here, so the runs are looked at this often. */
const POLL_MS = 1_000;
/** A look costs the database something, so a filter that is slow to answer is asked less often, down to once in 30 s. */
const LEAST_REST_MS = 250;
const MOST_REST_MS = 30_000;
/** A reader that did not take a message for so long is slow, not busy. */
const MAX_STALL_MS = 10_000;

/**
 * The newest runs that a filter holds for, among as many as a page looks at, then what changes among them, until the caller
 * leaves. Invariants:
 *   1. What is told is the difference between the runs as they are and as the watcher knows them, by their sequences.
 *      So nothing is missed, whatever was not seen meanwhile, and at most `limit` runs are held and told at a time.
 *   2. A message counts as known once it was taken. A watcher that comes back says what it knows, and the first
 *      difference is told as its snapshot.
 */
export async function* watchRuns(
  deps: Deps,
  tenantId: number,
  request: WatchRunsRequest,
  signal: AbortSignal,
): AsyncGenerator<Message> {
  const watch = { tenantId, filter: readFilter(request.filter), limit: readPageSize(request.limit) };
  if (request.known.length > MAX_KNOWN) throw invalidField("known", `at most ${MAX_KNOWN} runs are watched`);
  const known = new Map(request.known.map((run) => [run.runId, Number(run.sequence)]));
  let { keys, tookMs, oldest } = await look(deps.db, watch);
  const moved = keys.filter((key) => known.get(key.id) !== key.sequence);
  for (let at = 0; at === 0 || at < moved.length; at += PART) {
    const part = await read(deps.db, watch, moved.slice(at, at + PART));
    const complete = at + PART >= moved.length;
    yield* taken({ kind: { case: "snapshot", value: { runs: part.map((row) => writeRun(row)), complete } } });
    for (const row of part) known.set(row.id, row.sequence);
  }
  let beatAt = Date.now() + HEARTBEAT_MS;
  while (!signal.aborted) {
    for await (const change of differences(deps.db, watch, { keys, oldest }, known)) {
      yield* taken(change);
      beatAt = Date.now() + HEARTBEAT_MS;
    }
    await rest(deps.wakeups, tookMs, beatAt, signal);
    if (signal.aborted) return;
    if (Date.now() >= beatAt) {
      beatAt = Date.now() + HEARTBEAT_MS;
      yield* taken({ kind: { case: "heartbeat", value: create(HeartbeatSchema, { time: timestampNow() }) } });
    }
    ({ keys, tookMs, oldest } = await look(deps.db, watch));
  }
}

interface Watch {
  readonly tenantId: number;
  readonly filter: RunFilter;
  readonly limit: number;
}

interface Seen {
  readonly keys: readonly RunKey[];
  /** Older runs are not watched: there are enough newer ones, or as many were looked at as may be. */
  readonly oldest: bigint | undefined;
}

/** One page, so that a filter that nothing matches costs no more than one that is full. Newest first. */
async function look(db: Db, watch: Watch): Promise<Seen & { tookMs: number }> {
  const from = performance.now();
  const { rows: keys, next } = await listRunKeyPage(db, { ...watch, after: undefined, newestFirst: true });
  const oldest = keys.length < watch.limit ? next : keys.at(-1)?.id;
  return { keys, oldest, tookMs: performance.now() - from };
}

/** The runs of some keys, newest first; those that left the filter since are left out, as the next look tells. */
async function read(db: Db, watch: Watch, keys: readonly RunKey[]): Promise<RunRow[]> {
  if (keys.length === 0) return [];
  const ids = keys.map((key) => key.id);
  return listRuns(db, { ...watch, ids, limit: ids.length, after: undefined, newestFirst: true });
}

/** What the watcher does not know yet, oldest run first; each counts as known when the next is asked for. */
async function* differences(
  db: Db,
  watch: Watch,
  { keys, oldest }: Seen,
  known: Map<bigint, number>,
): AsyncGenerator<NonNullable<Message["change"]>> {
  const { tenantId } = watch;
  const there = new Set(keys.map((key) => key.id));
  for (const runId of [...known.keys()].filter((id) => !there.has(id))) {
    const row = await findRun(db, { tenantId, runId });
    const isOlder = oldest !== undefined && runId < oldest;
    const cause = row === undefined ? RunLeft_Cause.REMOVED : isOlder ? RunLeft_Cause.NEWER : RunLeft_Cause.FILTER;
    yield { kind: { case: "left", value: { runId, cause, ...(row !== undefined && { run: writeRun(row) }) } } };
    known.delete(runId);
  }
  const moved = keys.filter((key) => known.get(key.id) !== key.sequence).toReversed();
  for (let at = 0; at < moved.length; at += PART) {
    for (const row of (await read(db, watch, moved.slice(at, at + PART))).toReversed()) {
      yield { kind: { case: "run", value: writeRun(row) } };
      known.set(row.id, row.sequence);
    }
  }
}

/** Gives a message out, and refuses to go on with a reader that took too long over it. */
async function* taken(change: NonNullable<Message["change"]>): AsyncGenerator<Message> {
  const givenAt = Date.now();
  yield { change };
  if (Date.now() - givenAt < MAX_STALL_MS) return;
  throw new MeshError("SLOW_CONSUMER", "a message was not taken for 10 s: watch again with what you know");
}

/** Until something happened or the next look or beat is due; never shorter than what the last look cost allows. */
async function rest(wakeups: Wakeups, tookMs: number, beatAt: number, signal: AbortSignal): Promise<void> {
  const leastMs = Math.min(MOST_REST_MS, Math.max(LEAST_REST_MS, tookMs * 10));
  const from = Date.now();
  const untilBeat = Math.max(1, beatAt - from);
  await waitForWakeup(wakeups, ["outbox"], Math.min(untilBeat, Math.max(POLL_MS, leastMs)), signal);
  const early = Math.min(leastMs, untilBeat) - (Date.now() - from);
  if (early > 0) await waitForWakeup(wakeups, [], early, signal);
}

import type { PublishResult } from "@runmesh/bus/event-bus";
import type { OutboxRows } from "@runmesh/store/outbox";

/** What to do with the rows of a batch, by their indexes. */
export interface Settlement {
  /** Accepted: to be removed. */
  readonly sent: readonly number[];
  /** Runs with an event that can never be sent: it, and what stands behind it. */
  readonly poisoned: ReadonlyMap<number, { readonly indexes: readonly number[]; readonly error: unknown }>;
  /** Rows that stay and are sent again. */
  readonly leftCount: number;
  /** Of the first that stays: why. */
  readonly leftBecause: unknown;
  readonly retryAfterMs: number | undefined;
}

/** Reads the results of a batch, one for each index given. After the first of a run that stays, none of it is removed. */
export function settleBatch(
  rows: OutboxRows,
  indexes: readonly number[],
  results: readonly PublishResult[],
): Settlement {
  if (results.length !== indexes.length) {
    throw new Error(`the bus answered ${results.length} results for ${indexes.length} events`);
  }
  const sent: number[] = [];
  const poisoned = new Map<number, { indexes: number[]; error: unknown }>();
  const stopped = new Set<number>();
  let leftCount = 0;
  let leftBecause: unknown;
  let retryAfterMs: number | undefined;
  for (const [place, index] of indexes.entries()) {
    const result = results[place]!;
    const runId = rows.runIds[index]!;
    const parked = poisoned.get(runId);
    if (parked !== undefined) parked.indexes.push(index);
    else if (stopped.has(runId)) leftCount++;
    else if (result.kind === "accepted") sent.push(index);
    else if (result.kind === "poison") poisoned.set(runId, { indexes: [index], error: result.error });
    else {
      stopped.add(runId);
      leftCount++;
      if (result.kind === "unknown") leftBecause ??= result.error;
      if (result.kind === "overloaded") retryAfterMs = Math.max(retryAfterMs ?? 0, result.retryAfterMs);
    }
  }
  return { sent, poisoned, leftCount, leftBecause, retryAfterMs };
}

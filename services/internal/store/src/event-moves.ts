import type { NewEvent } from "./outbox-write.ts";

const nothing = {
  taskId: null,
  attempt: null,
  fence: null,
  sessionId: null,
  leasedAt: null,
  startedAt: null,
  outcome: null,
  errorType: null,
  retryAfterMs: null,
};

/** An event of the run itself. */
export const runMove = (sequence: number, type: number): NewEvent => ({ ...nothing, sequence, type });

/** An event of a task that is not an attempt's. */
export const taskMove = (move: { sequence: number; type: number; taskId: bigint }): NewEvent => ({
  ...nothing,
  ...move,
});

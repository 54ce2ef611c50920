import { ATTEMPT_OUTCOMES } from "@runmesh/domain/states";
import type { NewAttempt } from "./attempts.ts";
import type { LeaseRow } from "./leases.ts";

/** How history keeps a lease that its run's cancellation or failure ended. It has no event of its own. */
export const cancelledAttempt = (lease: LeaseRow): NewAttempt => ({
  taskId: lease.task_id,
  fence: lease.fence,
  number: lease.attempt,
  sessionId: lease.session_id,
  leasedAt: lease.leased_at,
  startedAt: lease.started_at,
  outcome: ATTEMPT_OUTCOMES.CANCELLED,
  sequence: 0,
  eventType: 0,
  output: null,
  errorType: null,
  errorMessage: null,
  errorDetails: null,
  retryable: null,
  retryAfterMs: null,
  progress: lease.progress,
});

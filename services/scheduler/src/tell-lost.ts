import type { Wakeups } from "@runmesh/platform/wakeup";
import type { LeaseLost } from "@runmesh/store/settle-run";

/** Hints that sessions lost leases: whoever keeps their streams looks which, and tells the workers. */
export function tellLost(wakeups: Wakeups, lost: readonly LeaseLost[]): void {
  for (const sessionId of new Set(lost.map((lease) => lease.sessionId))) wakeups.notify(`lost:${sessionId}`);
}

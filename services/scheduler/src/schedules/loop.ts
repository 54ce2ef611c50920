import { createLoop, type Loop } from "@runmesh/platform/loop";
import { wakeOn } from "@runmesh/platform/wakeup";
import { workThrough } from "@runmesh/platform/work-through";
import { forgetTicks } from "@runmesh/store/schedule-ticks";
import { listDueSchedules } from "@runmesh/store/schedules";
import { Resting } from "../resting.ts";
import type { ScheduleDeps } from "./schedule-deps.ts";
import { tickSchedule } from "./tick-schedule.ts";

const BATCH = 200;
/** Each is a transaction, and the mesh has other work. */
const AT_ONCE = 4;
const TICKS = 1_000;
const FORGET_EVERY_MS = 10_000;

/** After a failure a schedule rests: its ticks stay due for as long as their catch-up window. */
const REST_MS = 2_000;

/** Starts what schedules have due, each schedule on its own: one that fails holds up no other. */
export function createSchedules(deps: ScheduleDeps): Loop {
  const { db, log } = deps;
  const resting = new Resting<bigint>();
  let forgetAt = 0;

  async function tick(tenantId: number, id: bigint): Promise<boolean> {
    try {
      return await tickSchedule(deps, { tenantId, id });
    } catch (error) {
      resting.add(id, REST_MS);
      log.error({ schedule: `${tenantId}/${id}`, error }, "a schedule could not be moved; it will be tried again");
      return false;
    }
  }

  return createLoop({
    name: "schedules",
    intervalMs: 250,
    wake: wakeOn(deps.wakeups, "schedules"),
    log,
    async runOnce(signal) {
      // Left out where they are listed, so that those which fail, however many, do not take the places of others.
      const due = await listDueSchedules(db, { limit: BATCH, exceptIds: resting.list() });
      // The ticks stay due: within their catch-up window they start when the outbox has room again.
      if (due.length > 0) await deps.gauge.refuseWhenFull();
      let doneCount = 0;
      await workThrough(
        due,
        AT_ONCE,
        async ({ tenant_id: tenantId, id }) => {
          if (await tick(tenantId, id)) doneCount++;
        },
        signal,
      );
      if (signal.aborted) return { again: false };
      if (performance.now() >= forgetAt) {
        const forgotten = await forgetTicks(db, { limit: TICKS });
        if (forgotten < TICKS) forgetAt = performance.now() + FORGET_EVERY_MS;
      }
      return { again: doneCount > 0 };
    },
  });
}

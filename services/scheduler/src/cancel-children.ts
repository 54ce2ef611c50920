import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { endRun } from "@runmesh/store/end-run";
import { endChildrenTimer, listStrayChildren } from "@runmesh/store/stray-children";
import { tellLost } from "./tell-lost.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly wakeups: Wakeups;
}

const PAGE = 200;
/** Runs cancelled at once: each is a transaction, and the mesh has other work. */
const AT_ONCE = 4;

/**
 * Cancels the children that a run, or a task of it, left behind. Each is a transaction of its own, and has its own
 * children follow. The timer goes when none is left, so that a crash begins anew.
 */
export async function cancelChildren(
  deps: Deps,
  { tenantId, runId, due }: { tenantId: number; runId: bigint; due: string },
  signal: AbortSignal,
): Promise<void> {
  for (let afterId = 0n, isLast = false; !isLast; ) {
    const page = await listStrayChildren(deps.db, { tenantId, runId, afterId, limit: PAGE });
    isLast = page.length < PAGE;
    afterId = page.at(-1)?.id ?? afterId;
    let next = 0;
    const work = async (): Promise<void> => {
      while (next < page.length && !signal.aborted) await cancelChild(deps, tenantId, runId, page[next++]!.id);
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (signal.aborted) return;
  }
  // One whose parent was being moved may be left.
  const [left] = await listStrayChildren(deps.db, { tenantId, runId, afterId: 0n, limit: 1 });
  if (left === undefined) await endChildrenTimer(deps.db, { tenantId, runId, due });
}

async function cancelChild(deps: Deps, tenantId: number, parent: bigint, runId: bigint): Promise<void> {
  const { wakeups } = deps;
  const outcome = await endRun(deps, {
    tenantId,
    runId,
    as: "CANCELLED",
    principal: `run/${parent}`,
    onlyStray: true,
    skipLocked: true,
  });
  if (outcome.kind !== "ended" || !outcome.moved) return;
  tellLost(wakeups, outcome.lost);
  for (const route of outcome.wokenRoutes) wakeups.notify(`ready:${route}`);
  wakeups.notify(`run:${runId}`);
  wakeups.notify(`ended:${runId}`);
  wakeups.notify("outbox");
  wakeups.notify("children");
}

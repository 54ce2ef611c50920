import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** Statements that are meant to run over all tenants: loops, the relay, and what is asked before a tenant is known. */
export const ACROSS_TENANTS = new Set([
  "api-keys/findUsableKey",
  "audit/forgetAudit",
  "bus-messages/addMessages",
  "bus-messages/addSubscription",
  "bus-messages/countDelivery",
  "bus-messages/holdSubscription",
  "bus-messages/leaveSubscription",
  "bus-messages/listMessages",
  "bus-messages/listParkedMessageRuns",
  "bus-messages/listSubscriptions",
  "bus-messages/parkMessages",
  "bus-messages/removeMessages",
  "bus-messages/removeSubscription",
  "bus-messages/unparkMessages",
  "duties/holdDuty",
  "duties/leaveDuty",
  "held/listHalfResumed",
  "lane-groups/listLaneGroups",
  "lane-groups/lockHeldLaneGroup",
  "lane-groups/lockLaneGroup",
  "lane-groups/releaseLaneGroups",
  "lane-groups/renewLaneGroups",
  "lane-groups/takeLaneGroups",
  "leases/extendLiveLeases",
  "leases/listDueLeases",
  "leases/lookForOutage",
  "outbox-remove/discardOutbox",
  "outbox-remove/removeOutbox",
  "outbox-remove/trimOutbox",
  "outbox/measureOutbox",
  "outbox/takeOutbox",
  "overdue-starts/listOverdueLeases",
  "overdue-starts/listOverdueStarts",
  "partitions/dropPartition",
  "partitions/emptyRuns",
  "partitions/listSlots",
  "places/listDueLimited",
  "places/promoteScheduled",
  "requests/forgetRequests",
  "retention/listRemovedRuns",
  "retention/readPartitionFacts",
  "retention/removeOldRuns",
  "retention/removeOldSessions",
  "retention/removeOldStartKeys",
  "run-history/listEventTenants",
  "run-timers/listDueTimers",
  "schedule-ticks/forgetTicks",
  "schedules/listDueSchedules",
  "schedules/readClock",
  "sessions/closeStaleSessions",
  "settings/keepSetting",
  "slot-counts/removeIdleCounts",
  "suspended/listDueSuspended",
  "tenants/findTenant",
  "tenants/insertTenant",
  "tenants/listTenants",
  "unused-definitions/removeUnusedDefinitions",
  "waiting-keys/listWaitingKeys",
  "waiting-keys/listWaitingRunKeys",
]);

export interface Statement {
  /** As in "runs/findRun". */
  readonly name: string;
  readonly call: (...args: unknown[]) => unknown;
  readonly parameters: readonly string[];
}

/** Exported functions that take a database first. */
export async function readStatements(): Promise<Statement[]> {
  const folder = fileURLToPath(new URL("../../services/internal/store/src/", import.meta.url));
  const statements: Statement[] = [];
  for (const file of readdirSync(folder).sort()) {
    if (!file.endsWith(".ts") || file.endsWith(".test.ts")) continue;
    const exports = (await import(`${folder}${file}`)) as Record<string, unknown>;
    for (const [name, call] of Object.entries(exports)) {
      if (typeof call !== "function" || String(call).startsWith("class")) continue;
      const parameters = readParameters(String(call));
      if (!/^(db|tx|deps)$|\bdb\b/.test(parameters[0] ?? "")) continue;
      statements.push({ name: `${file.slice(0, -3)}/${name}`, call: call as Statement["call"], parameters });
    }
  }
  return statements;
}

/** The parameters of a function as it is written, destructured ones as they stand. */
function readParameters(source: string): string[] {
  const parameters: string[] = [];
  let depth = 0;
  let text = "";
  for (const char of source.slice(source.indexOf("(") + 1)) {
    if (depth === 0 && (char === "," || char === ")")) {
      if (text.trim() !== "")
        parameters.push(text.trim().split(/[\s=:]/)[0] === "{" ? text.trim() : text.trim().split(/[\s=:]/)[0]!);
      text = "";
      if (char === ")") break;
    } else text += char;
    if ("({[".includes(char)) depth++;
    if (")}]".includes(char)) depth--;
  }
  return parameters;
}

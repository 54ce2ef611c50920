import type { LoadedDefinition } from "@runmesh/store/definition-cache";

/** What belongs to a tenant, around one run of it. */
export interface Owned {
  readonly runId: bigint;
  readonly runState: number;
  readonly definitionId: bigint;
  readonly workflowId: number;
  readonly workflow: string;
  readonly taskId: bigint;
  readonly fence: bigint;
  readonly sessionId: bigint;
  readonly tokenHash: Buffer;
  readonly epoch: number;
  readonly routeId: number;
  readonly contentHash: Buffer;
  readonly keyId: string;
  readonly keyName: string;
  readonly keyHash: Buffer;
  readonly scheduleId: bigint;
  readonly digest: string;
}

export interface Values {
  /** The value of a name. Throws for one that nobody gave a value. */
  get(name: string): unknown;
  /** Something that has every name; `onTenant` is told when a tenant is read. */
  item(onTenant: () => void): object;
}

/** Where a name means something else in one statement than in the others. */
const ELSEWHERE: Readonly<Record<string, (of: Owned, loaded: LoadedDefinition) => Record<string, unknown>>> = {
  "api-keys/": (of) => ({ id: of.keyId, name: of.keyName, hash: of.keyHash, beforeId: "" }),
  "definitions/getDefinitionBody": (of) => ({ id: of.definitionId }),
  "workflows/": (of) => ({ name: of.workflow }),
  "definitions/": (of) => ({ hash: of.contentHash }),
  "schedules/": (of) => ({ name: "a-schedule", id: of.scheduleId, state: 1 }),
  "audit/": () => ({
    filter: { principal: "", action: "", target: "", after: undefined, before: undefined },
  }),
  admi: (of) => ({ keys: ["k:one", `r:${of.runId}`] }),
  "attempts/listLostInARow": () => ({ count: 3 }),
  "run-output/readRunOutputs": (of, loaded) => ({ runs: [{ runId: of.runId, loaded }] }),
  "change-run/changeRun": () => ({ ended: 0, dead: 0 }),
  "change-run/reopenRunRow": () => ({ open: 1, dead: 0 }),
  "schedules/advanceSchedule": () => ({ started: 0, buffered: 0 }),
  "sessions/": () => ({ slots: 10 }),
  "unused-definitions/": (of) => ({ id: of.definitionId }),
  "outbox-parked/parkEvents": () => ({ events: [], behind: false }),
  "unfold/": () => ({ attempts: [], dead: [] }),
  "requests/": () => ({ digest: "00000000-0000-0000-0000-000000000001" }),
  "schedule-ticks/noteStartedTicks": (of) => ({ started: [{ tick: Date.now(), runId: of.runId }] }),
  "slots/": (of) => ({ keys: ["k:one", `r:${of.runId}`] }),
  "slot-counts/": (of) => ({ keys: ["k:one", `r:${of.runId}`] }),
  "slots/listCandidates": () => ({ keys: ["one"] }),
  "admit-freed/": (of) => ({ keys: ["k:one", `r:${of.runId}`, "w:one"], onDeferred: undefined }),
  "begin-run/": (of) => ({ onDeferred: undefined, dueRunId: of.runId }),
  "run-slots/": () => ({ key: "run", looked: 10 }),
  "schedule-ticks/": () => ({ request: "00000000-0000-0000-0000-000000000001" }),
  "resolve-templates/": (of, loaded) => ({ items: [{ runId: of.runId, loaded, template: loaded.output }] }),
  "start-within-limits/": () => ({
    limits: {
      sharedBy: () => ({ key: "one", limit: 1 }),
      ofRoot: () => ({ key: "one", slotLimit: 1, runLimit: 1 }),
    },
  }),
  "standings/": (of) => ({ keys: ["k:one", `r:${of.runId}`] }),
  "tenants/": () => ({ name: "a-tenant" }),
  "routes/": () => ({ afterId: 0 }),
};

/** Values for every name that a statement reads from its arguments: those of one tenant, asked for by another. */
export function givenValues(statement: string, tenantId: number, of: Owned, loaded: LoadedDefinition): Values {
  const at = new Date();
  const own = Object.entries(ELSEWHERE).filter(([prefix]) => statement.startsWith(prefix));
  const values: Record<string, unknown> = {
    ...namesOf(tenantId, of, loaded, at),
    ...Object.assign({}, ...own.map(([, make]) => make(of, loaded))),
  };
  const item = (onTenant: () => void): object =>
    new Proxy(values, {
      get(_, name) {
        if (typeof name === "symbol" || name === "then" || name === "toJSON") return undefined;
        if (name === "tenantId" || name === "tenantIds") onTenant();
        return get(name);
      },
    });
  function get(name: string): unknown {
    if (!(name in values)) throw new Error(`no value for "${name}": give it one in tenant-values.ts`);
    return values[name];
  }
  return { get, item };
}

function namesOf(tenantId: number, of: Owned, loaded: LoadedDefinition, at: Date): Record<string, unknown> {
  const { runId, taskId, fence, sessionId, definitionId, workflowId, routeId } = of;
  const text = Buffer.from('"a"');
  const lease = {
    ...{ taskId, fence, sessionId, output: text, dependents: [], outcome: 2, error: undefined },
    ...{ sharesLimit: true, hasSlots: true },
  };
  const task = {
    ...{ taskId, routeId, rank: 0, attempt: 1, failures: 0, losses: 0, delayMs: 1_000, reason: 1, dueAtMs: 0 },
    ...{ key: "one", slotLimit: 1, runLimit: 0, concurrencyKey: "one", pending: 1, unsuccessful: 0, state: 2 },
  };
  const event = {
    ...{ sequence: 1_000, type: 1, taskId, attempt: 1, fence, sessionId, leasedAt: at, startedAt: at, outcome: 1 },
    ...{ errorType: "a", retryAfterMs: 1, at },
  };
  const attempt = {
    ...{ ...event, number: 1, eventType: 1, output: text, errorMessage: text, errorDetails: null, retryable: true },
    ...{ retryAfterMs: null, progress: null },
  };
  const run = {
    ...{ runId, definitionId, workflowId, taskCount: loaded.plan.taskCount, digest: of.digest, bodyHash: of.digest },
    ...{ input: undefined, labels: "{}", idempotencyKey: undefined, dueAtMs: 0, deadlineMs: 0, maxParallel: 0 },
    ...{ traceparent: undefined, pending: loaded.plan.initialPending, roots: loaded.plan.roots },
    ...{ routeIds: loaded.routeIds, ranks: loaded.ranks },
  };
  const step = {
    ...{ position: 0, kind: 1, name: "a", occurrence: 0, outcome: 1, value: text, childRunId: runId, durationMs: null },
  };
  const route = {
    ...{ queue: "default", handler: "a-none", requires: "", scheduleToStartMs: 0, startToCloseMs: 0, heartbeatMs: 0 },
    exclusive: false,
  };
  return {
    ...{ tenantId, tenantIds: [tenantId], runId, runIds: [runId], taskId, taskIds: [taskId], fence, fences: [fence] },
    ...{ sessionId, sessionIds: [sessionId], definitionId, id: sessionId, ids: [definitionId], workflowId },
    ...{ workflowIds: [workflowId], digest: of.digest, digests: [of.digest], routeId, routeIds: [routeId], loaded },
    ...{ tasks: [task], leases: [lease], held: [lease], completions: [lease], attempts: [attempt], events: [event] },
    ...{ ended: [], runs: [run], routes: [route], lines: [{ taskId, fence, at, level: 1, message: text }] },
    ...{ tokenHash: of.tokenHash, epoch: of.epoch, name: "a", handlers: ["a-work"], queues: ["default"] },
    ...{ capabilities: [], slots: [{ key: "one", runId, taskId, limit: 1 }], leaseMs: 15_000, keyHash: of.keyHash },
    ...{ fromTask: taskId, toTask: taskId, fromId: taskId, toId: taskId, afterTask: 0n, afterFence: 0n, afterLine: 0 },
    ...{ afterId: 0n, beforeId: 2n ** 62n, afterName: "", beforeAt: undefined, beforeVersion: 1_000, limit: 100 },
    ...{ afterSequence: 0, afterRunId: 0n, after: undefined, newestFirst: true, states: [], number: 0, state: 2 },
    ...{ place: "ready", keys: ["one"], key: "one", waiting: 10, keep: 0, reason: 1, mayWait: true, skipLocked: false },
    ...{ workflow: of.workflow, version: 0, errorType: "", prefix: "", hash: of.contentHash, inline: true, body: text },
    ...{ taskCount: loaded.plan.taskCount, edgeCount: 0, acquireId: undefined, progress: [text], youngMs: 0 },
    ...{
      principal: "a",
      comment: "",
      origin: "",
      action: "a",
      target: "a",
      result: "a",
      digestOf: of.digest,
      kind: 2,
      reopen: "all",
    },
    ...{ as: "CANCELLED", lockLeases: async () => [], placed: { routeIds: new Set(), keys: [] }, freed: ["k:one"] },
    ...{ succeeded: [0], dead: [], skipped: 0, cancelled: 0, failing: 0, isTerminal: false, failure: undefined },
    ...{ sequence: 1_000, unsuccessful: [0], pending: [1], limited: [], aliveAt: at, ms: 1, ttlMs: 1, owner: "a" },
    ...{
      roles: ["admin"],
      scopes: [],
      expiresAt: undefined,
      overlapMs: 1_000,
      requestsPerSecond: 1,
      keepDays: 1,
      startsPerSecond: 1,
    },
    ...{ scheduleId: of.scheduleId, ticks: [at.getTime()], started: [], open: true, lastRunId: runId, by: "a" },
    ...{ cron: "@daily", timeZone: "UTC", overlap: 1, catchUpMs: 1_000, paused: false, nextAt: at, lastAt: at },
    ...{ labels: "{}", input: undefined, missed: 0, buffered: 0, offered: "a", subscription: "a", perGroup: 1 },
    ...{ deadlineMs: 0, needs: [route], most: 10, places: ["(0,1)"], reach: 10 },
    ...{ task, first: { waitsFor: 1, name: "a", childRunId: runId }, value: text, names: ["a"], counts: [1] },
    ...{ parentTaskId: taskId, parentRunId: runId, rerunOf: runId, fromPosition: 0, toPosition: 10, position: 0 },
    ...{ slot: { slot: 0n, low: 0n, high: 1n << 18n, name: "a" }, mayEmpty: async () => false },
    ...{
      detached: false,
      maxBytes: 1_000_000,
      onlyStray: true,
      end: undefined,
      maxLookedAt: 10,
      due: "2026-01-01T00:00:00Z",
    },
    ...{
      steps: [step],
      waits: [step],
      calls: [step],
      answers: [step],
      positions: [0],
      from: 1,
      stay: false,
      childRunId: runId,
    },
    ...{ bodies: [], eventIds: [], laneGroups: [], exceptRunIds: [], error: "a", ends: [], behind: 0 },
    filter: {
      ...{ states: [], workflow: "", version: 0, createdAfter: undefined, createdBefore: undefined, labels: {} },
      ...{ parentRunId: 0n, idempotencyKey: "" },
    },
  };
}

import { create } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { type AnyWorkflow, MeshError } from "@runmesh/client";
import { createRegistration, createServiceClient, startRequest, validate } from "@runmesh/client/internal";
import { type Step, StepKind, StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import type { Attempt } from "./attempt.ts";
import type { Call } from "./calls.ts";
import type { DurableHost, StartOptions } from "./durable.ts";
import { CheckFailedError } from "./failure.ts";
import type { Session } from "./renewal-protocol.ts";
import { linesOf } from "./report.ts";

type Transport = Parameters<typeof createServiceClient>[1];

/** Makes what the durable calls of an attempt need. */
export type CreateHost = (attempt: Attempt) => DurableHost;

/** Not worth a suspension. */
const IN_PROCESS_MS = 10_000;
/** A call goes on while its lease may live: whether it does is the server's to say. */
const CALLS = { timeoutMs: 120_000, attempts: 100 };
/** The lease is not what it was: whatever the handler does no longer counts. */
const LOST: ReadonlySet<string> = new Set(["FENCE_STALE", "LEASE_EXPIRED", "SESSION_CLOSED"]);
/** Repeating the same would be refused the same. */
const FINAL: ReadonlySet<string> = new Set(["INVALID_FIELD", "INVALID_PAYLOAD", "TOO_LARGE", "FORBIDDEN"]);

/** The calls that a worker makes for its handlers' steps, waits and children. */
export function createDurableCalls(options: {
  readonly server: { readonly url: string; readonly apiKey?: string | undefined };
  readonly transport: Transport;
  session(): Session | undefined;
  onSuspended(attempt: Attempt): void;
}): CreateHost {
  const { transport } = options;
  const leases = createServiceClient(LeaseService, transport, CALLS);
  const runs = createServiceClient(RunService, transport, { ...CALLS, attempts: 1 });
  const registration = createRegistration(createServiceClient(WorkflowService, transport, CALLS), options.server);

  return (attempt) => {
    const { lease } = attempt;
    const named = () => {
      const { sessionId = 0n, sessionToken = "" } = options.session() ?? {};
      return { sessionId, sessionToken, taskId: lease.taskId, fence: lease.fence };
    };
    const guard = <T>(call: Promise<T>) => call.catch((error: unknown) => giveUp(attempt, error));

    async function startChild(call: Call, workflow: AnyWorkflow | string, input: unknown, rest: StartOptions) {
      const target = await readTarget(registration, workflow, rest);
      const checked = typeof workflow === "string" ? input : await checkInput(workflow, input);
      const { labels, dueTime, detached = false } = rest;
      const start = startRequest(checked, { ...(labels && { labels }), ...(dueTime && { dueTime }) }, target);
      start.requestId = "";
      const { position, occurrence } = call;
      const ask = () => runs.startChildRun({ ...named(), position, occurrence, start, detached });
      const { runId } = await ask().catch(async (error: unknown) => {
        if (!(error instanceof MeshError) || error.reason !== "NOT_FOUND") throw error;
        if (typeof workflow === "string") throw unknownWorkflow(error);
        registration.forget(workflow);
        start.contentHash = (await registration.register(workflow)).contentHash;
        return ask();
      });
      return create(StepSchema, { ...call, kind: StepKind.CHILD, done: 1, childRunId: runId });
    }

    return {
      isFirst: lease.attempt <= 1,
      inProcessMs: IN_PROCESS_MS,
      scope: `${lease.runId}/${encodeURIComponent(lease.key)}`,
      onSuspended: () => options.onSuspended(attempt),
      startChild: (...args) => guard(startChild(...args)),
      store: {
        load: () => guard(load(leases, named)),
        record: (steps) => guard(leases.recordSteps({ ...named(), steps: [...steps] }).then(() => undefined)),
        suspend: (waits, stay) => guard(suspend(leases, attempt, { ...named(), waits: [...waits], stay })),
      },
    };
  };
}

async function load(leases: Client<typeof LeaseService>, named: () => object): Promise<Step[]> {
  const steps: Step[] = [];
  for (let fromPosition = 0; ; fromPosition = steps.at(-1)!.position + 1) {
    const page = await leases.listSteps({ ...named(), fromPosition });
    steps.push(...page.steps);
    if (!page.hasMore) return steps;
  }
}

async function suspend(
  leases: Client<typeof LeaseService>,
  attempt: Attempt,
  request: Parameters<Client<typeof LeaseService>["suspendTask"]>[0],
): Promise<"suspended" | Step[]> {
  const { progressJson } = attempt;
  const last = request.stay ? {} : { log: linesOf(attempt), ...(progressJson && { progressJson }) };
  const answer = await leases.suspendTask({ ...request, ...last });
  return answer.suspended ? "suspended" : answer.steps;
}

async function readTarget(
  registration: ReturnType<typeof createRegistration>,
  workflow: AnyWorkflow | string,
  { version }: StartOptions,
) {
  if (typeof workflow === "string") return { workflow, ...(version !== undefined && { version }) };
  const { contentHash } = await registration.register(workflow);
  return { workflow: workflow.name, contentHash };
}

const unknownWorkflow = (cause: MeshError) =>
  new MeshError("NOT_FOUND", `${cause.message}: register it before, or give startRun its definition`, { cause });

async function checkInput(workflow: AnyWorkflow, input: unknown): Promise<unknown> {
  try {
    return await validate(workflow.input, input, "input");
  } catch (error) {
    throw CheckFailedError.from(error);
  }
}

/** What a refusal says of the attempt, before the call fails with it. */
function giveUp(attempt: Attempt, error: unknown): never {
  if (!(error instanceof MeshError)) throw error;
  if (LOST.has(error.reason) || error.reason === "RUN_NOT_ACTIVE") {
    attempt.lost = true;
    attempt.abort(error.reason === "RUN_NOT_ACTIVE" ? "cancelled" : "lease_lost");
  }
  throw FINAL.has(error.reason) ? CheckFailedError.from(error) : error;
}

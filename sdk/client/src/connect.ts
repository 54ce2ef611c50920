import type { Client } from "@connectrpc/connect";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { RunService, type StartRunResponse } from "@runmesh/contracts/run/v1/run_service_pb";
import { ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { TenantService } from "@runmesh/contracts/tenant/v1/tenant_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import type { AnyWorkflow, Workflow } from "./define-workflow.ts";
import { MeshError } from "./errors.ts";
import { createRegistration, type Registered } from "./registration.ts";
import { createRun, type Run, readRunId, type StartedRun } from "./run.ts";
import { RunWaits } from "./run-waits.ts";
import { createServiceClient } from "./service-client.ts";
import { type StartItem, type StartOptions, startAll, startBatch, startRegistered, startRequest } from "./start.ts";
import { StartGate } from "./start-gate.ts";
import { createTransport, type TransportOptions } from "./transport.ts";

export interface MeshOptions extends TransportOptions {
  /** Deadline of a call, its repeats included. Default 30 s. */
  readonly timeoutMs?: number;
  /** Tries of a call that was refused with UNAVAILABLE or OVERLOADED. Default 5. */
  readonly attempts?: number;
}

/** One item's answer of `startMany`. */
export type StartResult<O> =
  | { readonly ok: true; readonly run: StartedRun<O> }
  | { readonly ok: false; readonly error: MeshError };

/** A connection to a mesh. Every call rejects with `MeshError`. */
export interface Mesh {
  /** Starts a run, registering the workflow if the server does not have its content. */
  start<I, O>(workflow: Workflow<I, O>, input: I, options?: StartOptions): Promise<StartedRun<O>>;
  /** Starts any number of runs in batches, each on its own: one result per item, in order. */
  startMany<I, O>(workflow: Workflow<I, O>, items: readonly StartItem<I>[]): Promise<StartResult<O>[]>;
  /** Starts a registered workflow whose definition is not at hand. */
  startByName(
    workflow: string,
    input?: unknown,
    options?: StartOptions & { readonly version?: number },
  ): Promise<StartedRun<unknown>>;
  /** A run that was started before. */
  run<O = unknown>(id: string): Run<O>;
  /** Registers a workflow without starting it. The same content again answers the same version. */
  register(workflow: AnyWorkflow): Promise<Registered>;
  /** The services as the contracts have them, for what is not above. */
  readonly runs: Client<typeof RunService>;
  readonly workflows: Client<typeof WorkflowService>;
  readonly tasks: Client<typeof TaskService>;
  readonly workers: Client<typeof LeaseService>;
  readonly tenants: Client<typeof TenantService>;
  readonly schedules: Client<typeof ScheduleService>;
  /** Closes idle connections. They do not keep a process alive. */
  close(): void;
}

/** Connects to a mesh: no call is made before the first is asked for. */
export function connect(options: MeshOptions): Mesh {
  const transport = createTransport(options);
  const policy = { timeoutMs: options.timeoutMs ?? 30_000, attempts: options.attempts ?? 5 };
  const runs = createServiceClient(RunService, transport, policy);
  const workflows = createServiceClient(WorkflowService, transport, policy);
  const registration = createRegistration(workflows, options);
  const gate = new StartGate(runs, (requests) => startAll(runs, requests));
  const waits = new RunWaits(runs);

  function started<O>(answer: StartRunResponse): StartedRun<O> {
    return { ...createRun<O>(runs, waits, answer.runId), created: answer.created, version: answer.workflowVersion };
  }

  return {
    start: async (workflow, input, start = {}) =>
      started(await startRegistered(gate, registration, workflow, { ...start, input })),
    startMany: async (workflow, items) => {
      const answers = await startBatch(runs, registration, workflow, items);
      return answers.map((answer) =>
        answer instanceof MeshError ? { ok: false, error: answer } : { ok: true, run: started(answer) },
      );
    },
    startByName: async (workflow, input, { version, ...start } = {}) => {
      const target = { workflow, ...(version !== undefined && { version }) };
      return started(await gate.start(startRequest(input, start, target)));
    },
    run: (id) => createRun(runs, waits, readRunId(id)),
    register: (workflow) => registration.register(workflow),
    runs,
    workflows,
    tasks: createServiceClient(TaskService, transport, policy),
    workers: createServiceClient(LeaseService, transport, policy),
    tenants: createServiceClient(TenantService, transport, policy),
    schedules: createServiceClient(ScheduleService, transport, policy),
    close: () => transport.close(),
  };
}

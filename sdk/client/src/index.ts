export { compileDefinition } from "./compile-definition.ts";
export { connect, type Mesh, type MeshOptions, type StartResult } from "./connect.ts";
export {
  type AnyTask,
  defineTask,
  type Handler,
  type RetryOptions,
  type Task,
  type TaskOptions,
  type TaskSettings,
} from "./define-task.ts";
export {
  type AnyWorkflow,
  type Builder,
  defineWorkflow,
  type Node,
  type RunConcurrency,
  type SoftStepOptions,
  type StepOptions,
  type TaskConcurrency,
  type Workflow,
  type WorkflowOptions,
} from "./define-workflow.ts";
export type { ChildOptions, ChildRun, DurableContext, ResultOptions, Stored } from "./durable-context.ts";
export { MeshError, type Reason, ResultTimeoutError, RunFailedError, type Violation } from "./errors.ts";
export { orElse, type Ref, type Resolved, type Wire } from "./reference.ts";
export type { Registered } from "./registration.ts";
export type { Run, StartedRun, WaitOptions, WatchOptions } from "./run.ts";
export type { RunEvent, RunEventType, TaskOfEvent } from "./run-event.ts";
export type { RunInfo, RunState, TaskCounts } from "./run-info.ts";
export type { StartItem, StartOptions } from "./start.ts";
export type { TaskContext, TaskLog } from "./task-context.ts";

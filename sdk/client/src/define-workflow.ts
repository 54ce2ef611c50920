import type { StandardSchemaV1 } from "@standard-schema/spec";
import { compileDefinition } from "./compile-definition.ts";
import type { AnyTask, InputOf, OutputOf, Task, TaskSettings } from "./define-task.ts";
import { MeshError } from "./errors.ts";
import { createReference, pointerToken, type Ref, type Resolved, type Wire } from "./reference.ts";

/** A task placed in a graph. */
export interface Node<S> {
  readonly key: string;
  /** What the task will have answered. */
  readonly output: Ref<S>;
}

/** One place in a graph: overrides the task's settings. */
export interface StepOptions extends TaskSettings {
  /** Tasks that must end first, beside those that the params refer to. */
  readonly after?: readonly Node<unknown>[];
  /** What the ends of its dependencies must be for it to run. Default "all_succeeded". */
  readonly when?: "all_succeeded" | "all_done";
  readonly allowFailure?: false;
  /** Limits how many tasks of the tenant with one key are leased at a time. */
  readonly concurrency?: TaskConcurrency;
}

/** A place whose task may end without an output: what refers to it needs `orElse`. */
export interface SoftStepOptions extends Omit<StepOptions, "when" | "allowFailure"> {
  readonly when?: "all_succeeded" | "all_done" | "any_failed";
  /** The run goes on, and may succeed, when this task ends DEAD. */
  readonly allowFailure?: boolean;
}

export interface TaskConcurrency {
  /** 1 to 1,024 bytes, or a reference to a string of the input. */
  readonly key: Wire<string>;
  /** 1 to 1,000. Default 1. */
  readonly limit?: number;
}

export interface RunConcurrency<I> {
  readonly key: string | ((input: Ref<I>) => Wire<string>);
  /** 1 to 1,000. Default 1. */
  readonly limit?: number;
  /** What a newcomer over the limit does. Default "queue". */
  readonly onConflict?: "queue" | "cancel_oldest" | "refuse";
}

/** What `build` draws the graph with. */
export interface Builder<I> {
  /** The run's input. */
  readonly input: Ref<I>;
  /** Adds a task. What its params refer to runs first. */
  task<W, H, R, S>(key: string, task: Task<W, H, R, S>, params: Wire<W>, options?: StepOptions): Node<S>;
  task<W, H, R, S>(key: string, task: Task<W, H, R, S>, params: Wire<W>, options: SoftStepOptions): Node<S | undefined>;
}

export interface WorkflowOptions<I extends StandardSchemaV1, R> {
  /** 1 to 128 bytes of [A-Za-z0-9._/-]. */
  readonly name: string;
  readonly input: I;
  /** Draws the graph, once, and returns what a run answers. */
  build(w: Builder<OutputOf<I>>): R;
  /** The run ends TIMED_OUT when it took longer. A duration such as "1h30m". Default none. */
  readonly deadline?: string;
  /**
   * "stop" (default): at the first DEAD task without allowFailure what has not started is cancelled, but for
   * compensation. "finish": only what needs the DEAD task is skipped.
   */
  readonly onFailure?: "stop" | "finish";
  /** Most tasks of one run leased at a time, up to 10,000. Default no limit. */
  readonly maxParallel?: number;
  readonly concurrency?: RunConcurrency<OutputOf<I>>;
}

/** A graph of tasks from an input to an output. */
export interface Workflow<I, O> extends AnyWorkflow {
  readonly "~input"?: I;
  readonly "~output"?: O;
}

/** What is common to workflows of any type. */
export interface AnyWorkflow {
  readonly name: string;
  readonly input: StandardSchemaV1;
  readonly graph: Graph;
}

/** What `build` drew. */
export interface Graph {
  readonly owner: object;
  readonly tasks: ReadonlyMap<string, PlacedTask>;
  readonly output: unknown;
  readonly options: Omit<WorkflowOptions<StandardSchemaV1, unknown>, "name" | "input" | "build" | "concurrency"> & {
    readonly concurrency?: { key: unknown; limit?: number; onConflict?: RunConcurrency<unknown>["onConflict"] };
  };
}

export interface PlacedTask {
  readonly task: AnyTask;
  readonly params: unknown;
  readonly options: SoftStepOptions;
}

/** Defines a workflow. Wrong wiring does not compile; what only shows when the graph is drawn throws here. */
export function defineWorkflow<I extends StandardSchemaV1, const R>(
  options: WorkflowOptions<I, R>,
): Workflow<InputOf<I>, Resolved<R>> {
  const { name, input, build, concurrency, ...rest } = options;
  const owner = {};
  const tasks = new Map<string, PlacedTask>();
  const inputRef = createReference<OutputOf<I>>({ pointer: "#/input", owner });
  const builder: Builder<OutputOf<I>> = {
    input: inputRef,
    task(key: string, task: AnyTask, params: unknown, step: StepOptions | SoftStepOptions = {}) {
      if (tasks.has(key)) throw duplicate(name, key);
      tasks.set(key, { task, params, options: step });
      return { key, output: createReference<never>({ pointer: `#/tasks/${pointerToken(key)}/output`, owner }) };
    },
  };
  const output = build(builder);
  if (output instanceof Promise) {
    throw new TypeError(`workflow ${name}: build must draw the graph at once, and not be async`);
  }
  const key = typeof concurrency?.key === "function" ? concurrency.key(inputRef) : concurrency?.key;
  const graph: Graph = {
    owner,
    tasks,
    output,
    options: { ...rest, ...(concurrency && { concurrency: { ...concurrency, key } }) },
  };
  const workflow = { name, input, graph };
  compileDefinition(workflow);
  return workflow;
}

function duplicate(workflow: string, key: string): MeshError {
  const description = `two tasks of workflow ${workflow} have the key ${key}`;
  return new MeshError("DUPLICATE_KEY", description, {
    advice: "Give each task a key of its own.",
    violations: [{ field: `tasks.${key}`, reason: "DUPLICATE_KEY", description }],
  });
}

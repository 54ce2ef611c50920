import type { Definition, TaskDefinition } from "./definition.ts";
import { countDependencies, type Edges, type Graph, GraphBuilder, neighbours, sortByDependencies } from "./graph.ts";
import { collectReferences } from "./references.ts";

/** A definition's graph by ordinals: a task's ordinal is its place in `definition.tasks`. */
export interface Plan {
  readonly taskCount: number;
  /** Those that references imply are counted, and none twice. */
  readonly edgeCount: number;
  readonly keys: readonly string[];
  readonly ordinalOf: ReadonlyMap<string, number>;
  /** What a task waits for. */
  readonly dependencies: Edges;
  /** What waits for a task. */
  readonly dependents: Edges;
  /** Ordinals so that each comes after its dependencies. */
  readonly order: Int32Array;
  /** How many dependencies each task has: its pending count when the run starts. */
  readonly initialPending: Int32Array;
  /** Tasks that are READY when the run starts, ascending. */
  readonly roots: readonly number[];
  /** Whether a plain success needs no more than one less pending on each dependent: none of them is `any_failed`. */
  isFastPath(ordinal: number): boolean;
}

/** Plans by the definition they belong to, so that validating and planning read the references once. */
const planned = new WeakMap<Definition, Plan>();

/** Plans a definition that `validateDefinition` made, now or in another process. */
export function buildPlan(definition: Definition): Plan {
  return planned.get(definition) ?? planAhead(definition, buildGraph(definition));
}

/** Keeps the plan for `buildPlan` where the graph is known already. */
export function planAhead(definition: Definition, graph: Graph): Plan {
  const plan = planGraph(definition.tasks, graph);
  planned.set(definition, plan);
  return plan;
}

function buildGraph(definition: Definition): Graph {
  const ordinalOf = indexKeys(definition.tasks);
  const builder = new GraphBuilder(definition.tasks.length);
  for (const task of definition.tasks) {
    builder.nextTask();
    for (const key of task.dependsOn) builder.add(getOrdinal(ordinalOf, key));
    if (task.params === undefined) continue;
    for (const { source } of collectReferences(task.params)) {
      if (source !== "input") builder.add(getOrdinal(ordinalOf, source.task));
    }
  }
  return builder.build();
}

function planGraph(tasks: readonly TaskDefinition[], graph: Graph): Plan {
  const order = sortByDependencies(graph);
  if (order.length < graph.taskCount) throw new Error("a definition with a circle was planned without being validated");
  const initialPending = countDependencies(graph);
  const roots: number[] = [];
  const isFast = new Uint8Array(graph.taskCount).fill(1);
  for (const [ordinal, task] of tasks.entries()) {
    if (initialPending[ordinal] === 0) roots.push(ordinal);
    if (task.when !== "any_failed") continue;
    for (const dependency of neighbours(graph.dependencies, ordinal)) isFast[dependency] = 0;
  }
  return {
    ...graph,
    keys: tasks.map((task) => task.key),
    ordinalOf: indexKeys(tasks),
    order,
    initialPending,
    roots,
    isFastPath: (ordinal) => isFast[ordinal] === 1,
  };
}

function indexKeys(tasks: readonly TaskDefinition[]): Map<string, number> {
  return new Map(tasks.map((task, ordinal) => [task.key, ordinal]));
}

function getOrdinal(ordinalOf: ReadonlyMap<string, number>, key: string): number {
  const ordinal = ordinalOf.get(key);
  if (ordinal === undefined) throw new Error(`a definition was planned without being validated: no task ${key}`);
  return ordinal;
}

import type { Definition, TaskDefinition } from "./definition.ts";
import {
  countDependencies,
  type Edges,
  type Graph,
  GraphBuilder,
  neighbours,
  type SortedGraph,
  sortByDependencies,
} from "./graph.ts";
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
  const plan = planned.get(definition);
  if (plan !== undefined) return plan;
  const ordinalOf = indexKeys(definition.tasks);
  const graph = buildGraph(definition.tasks, ordinalOf);
  return planAhead(definition, ordinalOf, { graph, order: sortByDependencies(graph) });
}

/** Keeps the plan for `buildPlan` where the graph is known already. */
export function planAhead(
  definition: Definition,
  ordinalOf: ReadonlyMap<string, number>,
  { graph, order }: SortedGraph,
): Plan {
  const plan = planGraph(definition.tasks, ordinalOf, graph, order);
  planned.set(definition, plan);
  return plan;
}

function buildGraph(tasks: readonly TaskDefinition[], ordinalOf: ReadonlyMap<string, number>): Graph {
  const builder = new GraphBuilder(tasks.length);
  for (const task of tasks) {
    builder.nextTask();
    for (const key of task.dependsOn) builder.add(getOrdinal(ordinalOf, key));
    if (task.params === undefined) continue;
    for (const { source } of collectReferences(task.params)) {
      if (source !== "input") builder.add(getOrdinal(ordinalOf, source.task));
    }
  }
  return builder.build();
}

function planGraph(
  tasks: readonly TaskDefinition[],
  ordinalOf: ReadonlyMap<string, number>,
  graph: Graph,
  order: Int32Array,
): Plan {
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
    ordinalOf,
    order,
    initialPending,
    roots,
    isFastPath: (ordinal) => isFast[ordinal] === 1,
  };
}

/** The place of each key; of twins, the first. An absent key is the empty one. */
export function indexKeys(tasks: readonly { readonly key?: string | undefined }[]): Map<string, number> {
  const ordinalOf = new Map<string, number>();
  for (let ordinal = 0; ordinal < tasks.length; ordinal++) {
    const key = tasks[ordinal]!.key ?? "";
    if (!ordinalOf.has(key)) ordinalOf.set(key, ordinal);
  }
  return ordinalOf;
}

function getOrdinal(ordinalOf: ReadonlyMap<string, number>, key: string): number {
  const ordinal = ordinalOf.get(key);
  if (ordinal === undefined) throw new Error(`a definition was planned without being validated: no task ${key}`);
  return ordinal;
}

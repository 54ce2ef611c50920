/** Adjacency in two flat arrays: the neighbours of `i` are `targets[offsets[i]]` up to `targets[offsets[i + 1]]`. */
export interface Edges {
  readonly offsets: Int32Array;
  readonly targets: Int32Array;
}

export interface Graph {
  readonly taskCount: number;
  readonly edgeCount: number;
  /** What a task waits for. */
  readonly dependencies: Edges;
  /** What waits for a task. */
  readonly dependents: Edges;
}

export interface SortedGraph {
  readonly graph: Graph;
  /** Ordinals so that each comes after its dependencies; those on a circle, or behind one, are left out. */
  readonly order: Int32Array;
}

/** Collects edges task by task, in the order of their ordinals; an edge that is there already is not added again. */
export class GraphBuilder {
  readonly #offsets: Int32Array;
  readonly #seenBy: Int32Array;
  #targets = new Int32Array(64);
  #edgeCount = 0;
  #task = -1;

  constructor(taskCount: number) {
    this.#offsets = new Int32Array(taskCount + 1);
    this.#seenBy = new Int32Array(taskCount).fill(-1);
  }

  get edgeCount(): number {
    return this.#edgeCount;
  }

  /** Edges added from here on belong to the next task. */
  nextTask(): void {
    this.#task++;
    this.#offsets[this.#task] = this.#edgeCount;
  }

  /** False where the task has that dependency already. */
  add(dependency: number): boolean {
    if (this.#seenBy[dependency] === this.#task) return false;
    this.#seenBy[dependency] = this.#task;
    if (this.#edgeCount === this.#targets.length) {
      const grown = new Int32Array(2 * this.#targets.length);
      grown.set(this.#targets);
      this.#targets = grown;
    }
    this.#targets[this.#edgeCount++] = dependency;
    return true;
  }

  build(): Graph {
    this.#offsets.fill(this.#edgeCount, this.#task + 1);
    const dependencies = { offsets: this.#offsets, targets: this.#targets.slice(0, this.#edgeCount) };
    const taskCount = this.#offsets.length - 1;
    return { taskCount, edgeCount: this.#edgeCount, dependencies, dependents: reverse(dependencies, taskCount) };
  }
}

function reverse({ offsets, targets }: Edges, taskCount: number): Edges {
  const starts = new Int32Array(taskCount + 1);
  for (let edge = 0; edge < targets.length; edge++) starts[targets[edge]! + 1]!++;
  for (let task = 0; task < taskCount; task++) starts[task + 1]! += starts[task]!;
  const next = starts.slice();
  const sources = new Int32Array(targets.length);
  for (let task = 0; task < taskCount; task++) {
    for (let edge = offsets[task]!; edge < offsets[task + 1]!; edge++) sources[next[targets[edge]!]!++] = task;
  }
  return { offsets: starts, targets: sources };
}

/** How many dependencies each task has. */
export function countDependencies(graph: Graph): Int32Array {
  const { offsets } = graph.dependencies;
  const counts = new Int32Array(graph.taskCount);
  for (let task = 0; task < graph.taskCount; task++) counts[task] = offsets[task + 1]! - offsets[task]!;
  return counts;
}

/** Tasks so that each comes after its dependencies (Kahn). Those on a circle, or behind one, are left out. */
export function sortByDependencies(graph: Graph): Int32Array {
  const pending = countDependencies(graph);
  const order = new Int32Array(graph.taskCount);
  let sorted = 0;
  for (let task = 0; task < graph.taskCount; task++) if (pending[task] === 0) order[sorted++] = task;
  const { offsets, targets } = graph.dependents;
  for (let done = 0; done < sorted; done++) {
    const task = order[done]!;
    for (let edge = offsets[task]!; edge < offsets[task + 1]!; edge++) {
      const dependent = targets[edge]!;
      pending[dependent]!--;
      if (pending[dependent] === 0) order[sorted++] = dependent;
    }
  }
  return order.subarray(0, sorted);
}

/** One circle, each task followed by a dependency of its; `sorted` is what `sortByDependencies` found, not all tasks. */
export function findCycle(graph: Graph, sorted: Int32Array): number[] {
  const isSorted = new Uint8Array(graph.taskCount);
  for (const task of sorted) isSorted[task] = 1;
  // Every unsorted task has an unsorted dependency, so this walk meets itself again.
  const placeOf = new Int32Array(graph.taskCount).fill(-1);
  const way: number[] = [];
  let task = isSorted.indexOf(0);
  while (placeOf[task] === -1) {
    placeOf[task] = way.length;
    way.push(task);
    task = neighbours(graph.dependencies, task).find((dependency) => isSorted[dependency] === 0)!;
  }
  return way.slice(placeOf[task]);
}

/** A view, not a copy. */
export function neighbours(edges: Edges, task: number): Int32Array {
  return edges.targets.subarray(edges.offsets[task], edges.offsets[task + 1]);
}

import type { TaskDefinition } from "./definition.ts";
import { type Faults, quote } from "./faults.ts";
import { findCycle, type Graph, GraphBuilder, neighbours, sortByDependencies } from "./graph.ts";
import { fieldAt } from "./json-pointer.ts";
import type { ReadTask } from "./read-task.ts";
import { type Reference, writeReference } from "./references.ts";

export const MAX_EDGES = 100_000;

/** So many tasks of a circle are named. */
const MAX_NAMED = 12;

/**
 * Checks keys, dependencies and references, and answers the graph, which is whole where there were no faults. A
 * reference implies its dependency, so the task it names is an ancestor unless there is no such task or the way back
 * makes a circle: no ancestor sets are needed.
 */
export function checkGraph(
  reads: readonly ReadTask[],
  output: readonly Reference[],
  root: string,
  faults: Faults,
): Graph | undefined {
  const check = new GraphCheck(reads, root, faults);
  check.indexKeys();
  const graph = check.addEdges();
  if (graph !== undefined) check.checkOrder(graph, output);
  return graph;
}

class GraphCheck {
  readonly #ordinalOf = new Map<string, number>();
  readonly #reads: readonly ReadTask[];
  readonly #root: string;
  readonly #faults: Faults;

  constructor(reads: readonly ReadTask[], root: string, faults: Faults) {
    this.#reads = reads;
    this.#root = root;
    this.#faults = faults;
  }

  indexKeys(): void {
    for (const [ordinal, { task }] of this.#reads.entries()) {
      const first = this.#ordinalOf.get(task.key);
      if (first === undefined) this.#ordinalOf.set(task.key, ordinal);
      else if (task.key !== "") {
        this.#faults.add(`${this.#at(ordinal)}.key`, `is the key of tasks[${first}] too`, "DUPLICATE_KEY");
      }
    }
  }

  /** The graph without the edges that are wrong; undefined where there are too many edges or faults to go on. */
  addEdges(): Graph | undefined {
    const builder = new GraphBuilder(this.#reads.length);
    for (const [ordinal, { task, references }] of this.#reads.entries()) {
      builder.nextTask();
      this.#addDependencies(builder, ordinal, task);
      for (const reference of references) this.#addReference(builder, ordinal, reference);
      if (
        task.when === "any_failed" &&
        task.dependsOn.length === 0 &&
        references.every((each) => each.source === "input")
      ) {
        this.#faults.add(`${this.#at(ordinal)}.when`, "any_failed needs a dependency that can fail");
      }
      if (builder.edgeCount > MAX_EDGES) {
        this.#faults.add(
          `${this.#root}.tasks`,
          "must hold at most 100000 dependencies, references included",
          "TOO_LARGE",
        );
        return undefined;
      }
      if (this.#faults.isFull) return undefined;
    }
    return builder.build();
  }

  checkOrder(graph: Graph, output: readonly Reference[]): void {
    const order = sortByDependencies(graph);
    if (order.length < graph.taskCount) this.#refuseCycle(findCycle(graph, order));
    else this.#checkOutput(output, findSkippable(this.#reads, graph, order));
  }

  #addDependencies(builder: GraphBuilder, ordinal: number, task: TaskDefinition): void {
    for (const [index, key] of task.dependsOn.entries()) {
      const dependency = this.#ordinalOf.get(key);
      const field = () => `${this.#at(ordinal)}.depends_on[${index}]`;
      if (dependency === undefined) this.#faults.add(field(), `names no task: ${quote(key)}`, "UNKNOWN_TASK");
      else if (dependency === ordinal) this.#faults.add(field(), "is the task itself", "GRAPH_CYCLE");
      else if (!builder.add(dependency)) this.#faults.add(field(), "is listed twice");
      if (builder.edgeCount > MAX_EDGES || this.#faults.isFull) return;
    }
  }

  #addReference(builder: GraphBuilder, ordinal: number, reference: Reference): void {
    if (reference.source === "input") return;
    const dependency = this.#ordinalOf.get(reference.source.task);
    const { task } = this.#reads[ordinal]!;
    const params = `${this.#at(ordinal)}.params`;
    if (dependency === undefined) this.#refuse(params, reference, "names no task");
    else if (dependency === ordinal) this.#refuse(params, reference, "is the task's own output");
    else {
      builder.add(dependency);
      if (reference.hasDefault) return;
      if (task.when !== "all_succeeded")
        this.#refuse(params, reference, `may find nothing under ${task.when}: give a default`);
      else if (this.#reads[dependency]!.task.allowFailure) {
        this.#refuse(params, reference, "may find nothing, as the task has allow_failure: give a default");
      }
    }
  }

  #checkOutput(output: readonly Reference[], isSkippable: Uint8Array): void {
    for (const reference of output) {
      if (reference.source === "input") continue;
      const ordinal = this.#ordinalOf.get(reference.source.task);
      const field = `${this.#root}.output`;
      if (ordinal === undefined) this.#refuse(field, reference, "names no task");
      else if (reference.hasDefault) continue;
      else if (this.#reads[ordinal]!.task.allowFailure) {
        this.#refuse(field, reference, "may find nothing, as the task has allow_failure: give a default");
      } else if (isSkippable[ordinal] === 1) {
        this.#refuse(field, reference, "may find nothing, as the task may be skipped: give a default");
      }
    }
  }

  /** A circle that only a reference closes is that reference's fault: what it names is no ancestor. */
  #refuseCycle(found: readonly number[]): void {
    const first = found.indexOf(found.reduce((least, ordinal) => Math.min(least, ordinal)));
    const cycle = [...found.slice(first), ...found.slice(0, first)];
    const next = (place: number) => cycle[(place + 1) % cycle.length]!;
    const isListed = (place: number) => this.#dependsOn(cycle[place]!).includes(this.#key(next(place)));
    const way = nameCycle(cycle.map((ordinal) => this.#key(ordinal)));
    const listed = cycle.findIndex((_, place) => isListed(place));
    const referred = cycle.findIndex((_, place) => !isListed(place));
    if (referred === -1 || listed === -1) {
      this.#faults.add(this.#edgeField(cycle[0]!, next(0)), `makes a circle: ${way}`, "GRAPH_CYCLE");
    } else {
      const field = this.#edgeField(cycle[referred]!, next(referred));
      this.#faults.add(
        field,
        `refers to a task that is no ancestor, as this makes a circle: ${way}`,
        "INVALID_REFERENCE",
      );
    }
  }

  #edgeField(ordinal: number, dependency: number): string {
    const key = this.#key(dependency);
    const index = this.#dependsOn(ordinal).indexOf(key);
    if (index !== -1) return `${this.#at(ordinal)}.depends_on[${index}]`;
    const names = ({ source }: Reference) => source !== "input" && source.task === key;
    return fieldAt(`${this.#at(ordinal)}.params`, this.#reads[ordinal]!.references.find(names)!.at);
  }

  #refuse(field: string, reference: Reference, why: string): void {
    const written = writeReference(reference.source, reference.pointer);
    this.#faults.add(fieldAt(field, reference.at), `${quote(written)} ${why}`, "INVALID_REFERENCE");
  }

  #at = (ordinal: number): string => `${this.#root}.tasks[${ordinal}]`;
  #key = (ordinal: number): string => this.#reads[ordinal]!.task.key;
  #dependsOn = (ordinal: number): readonly string[] => this.#reads[ordinal]!.task.dependsOn;
}

/** Tasks that can end SKIPPED in a run that succeeds: those that wait for a failure, and what needs them to succeed. */
function findSkippable(reads: readonly ReadTask[], graph: Graph, order: Int32Array): Uint8Array {
  const isSkippable = new Uint8Array(reads.length);
  for (const ordinal of order) {
    const { when } = reads[ordinal]!.task;
    const mayLack = () => neighbours(graph.dependencies, ordinal).some((dependency) => isSkippable[dependency] === 1);
    if (when === "any_failed" || (when === "all_succeeded" && mayLack())) isSkippable[ordinal] = 1;
  }
  return isSkippable;
}

function nameCycle(keys: readonly string[]): string {
  if (keys.length <= MAX_NAMED) return [...keys, keys[0]].join(" -> ");
  return `${keys.slice(0, MAX_NAMED).join(" -> ")} -> … (${keys.length} tasks) -> ${keys[0]}`;
}

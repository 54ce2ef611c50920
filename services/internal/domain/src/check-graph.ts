import type { TaskDefinition } from "./definition.ts";
import type { Reason } from "./errors.ts";
import { type Faults, quote } from "./faults.ts";
import { findCycle, type Graph, GraphBuilder, neighbours, type SortedGraph, sortByDependencies } from "./graph.ts";
import { fieldAt } from "./json-pointer.ts";
import { type Reference, scanReferences } from "./reference-scan.ts";
import { writeReference } from "./references.ts";
import { INPUT, NO_TASK, type TaskReferences } from "./task-references.ts";

const MAX_EDGES = 100_000;

/** So many tasks of a circle are named. */
const MAX_NAMED = 12;
const MAY_FAIL = "may find nothing, as the task has allow_failure: give a default";

/** The tasks of a definition as they were read, and where their keys and references lead. */
export interface Tasks {
  readonly all: readonly TaskDefinition[];
  /** Of twins, the first. */
  readonly ordinalOf: ReadonlyMap<string, number>;
  readonly references: TaskReferences;
}

/**
 * Checks keys, dependencies and references, and answers the graph, which is whole where there were no faults. A
 * reference implies its dependency, so the task it names is an ancestor unless there is no such task or the way back
 * makes a circle: no ancestor sets are needed.
 */
export function checkGraph(
  tasks: Tasks,
  output: readonly Reference[],
  root: string,
  faults: Faults,
): SortedGraph | undefined {
  const check = new GraphCheck(tasks, root, faults);
  check.checkKeys();
  const graph = check.addEdges();
  return graph && { graph, order: check.checkOrder(graph, output) };
}

class GraphCheck {
  readonly #tasks: readonly TaskDefinition[];
  readonly #ordinalOf: ReadonlyMap<string, number>;
  readonly #references: TaskReferences;
  readonly #root: string;
  readonly #faults: Faults;

  constructor(tasks: Tasks, root: string, faults: Faults) {
    this.#tasks = tasks.all;
    this.#ordinalOf = tasks.ordinalOf;
    this.#references = tasks.references;
    this.#root = root;
    this.#faults = faults;
  }

  checkKeys(): void {
    if (this.#ordinalOf.size === this.#tasks.length) return;
    for (let ordinal = 0; ordinal < this.#tasks.length; ordinal++) {
      const key = this.#key(ordinal);
      const first = this.#ordinalOf.get(key)!;
      if (first !== ordinal && key !== "") {
        this.#faults.add(`${this.#at(ordinal)}.key`, `is the key of tasks[${first}] too`, "DUPLICATE_KEY");
      }
    }
  }

  /** The graph without the edges that are wrong; undefined where there are too many edges or faults to go on. */
  addEdges(): Graph | undefined {
    const builder = new GraphBuilder(this.#tasks.length);
    for (let ordinal = 0; ordinal < this.#tasks.length; ordinal++) {
      builder.nextTask();
      this.#addDependencies(builder, ordinal);
      this.#addReferences(builder, ordinal);
      const { when, dependsOn } = this.#tasks[ordinal]!;
      if (when === "any_failed" && dependsOn.length === 0 && !this.#refersToTask(ordinal)) {
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

  checkOrder(graph: Graph, output: readonly Reference[]): Int32Array {
    const order = sortByDependencies(graph);
    if (order.length < graph.taskCount) this.#refuseCycle(findCycle(graph, order));
    else if (output.length > 0) this.#checkOutput(output, findSkippable(this.#tasks, graph, order));
    return order;
  }

  #addDependencies(builder: GraphBuilder, ordinal: number): void {
    const keys = this.#dependsOn(ordinal);
    for (let index = 0; index < keys.length; index++) {
      const dependency = this.#ordinalOf.get(keys[index]!);
      if (dependency === undefined) {
        this.#refuseDependency(ordinal, index, `names no task: ${quote(keys[index]!)}`, "UNKNOWN_TASK");
      } else if (dependency === ordinal) {
        this.#refuseDependency(ordinal, index, "is the task itself", "GRAPH_CYCLE");
      } else if (!builder.add(dependency)) {
        this.#refuseDependency(ordinal, index, "is listed twice");
      }
      if (builder.edgeCount > MAX_EDGES || this.#faults.isFull) return;
    }
  }

  #refuseDependency(ordinal: number, index: number, why: string, reason?: Reason): void {
    this.#faults.add(`${this.#at(ordinal)}.depends_on[${index}]`, why, reason);
  }

  #addReferences(builder: GraphBuilder, ordinal: number): void {
    const { when } = this.#tasks[ordinal]!;
    const references = this.#references;
    const end = references.startOf(ordinal + 1);
    for (let place = references.startOf(ordinal); place < end; place++) {
      const dependency = references.sourceAt(place);
      if (dependency === INPUT) continue;
      if (dependency === NO_TASK) this.#refuseOf(ordinal, place, "names no task");
      else if (dependency === ordinal) this.#refuseOf(ordinal, place, "is the task's own output");
      else {
        builder.add(dependency);
        if (references.hasDefaultAt(place)) continue;
        if (when !== "all_succeeded") this.#refuseOf(ordinal, place, `may find nothing under ${when}: give a default`);
        else if (this.#tasks[dependency]!.allowFailure) this.#refuseOf(ordinal, place, MAY_FAIL);
      }
    }
  }

  #refersToTask(ordinal: number): boolean {
    const end = this.#references.startOf(ordinal + 1);
    for (let place = this.#references.startOf(ordinal); place < end; place++) {
      if (this.#references.sourceAt(place) !== INPUT) return true;
    }
    return false;
  }

  #checkOutput(output: readonly Reference[], isSkippable: Uint8Array): void {
    for (const reference of output) {
      if (reference.source === "input") continue;
      const ordinal = this.#ordinalOf.get(reference.source.task);
      const field = `${this.#root}.output`;
      if (ordinal === undefined) this.#refuse(field, reference, "names no task");
      else if (reference.hasDefault) continue;
      else if (this.#tasks[ordinal]!.allowFailure) this.#refuse(field, reference, MAY_FAIL);
      else if (isSkippable[ordinal] === 1) {
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
    return fieldAt(`${this.#at(ordinal)}.params`, this.#readReferences(ordinal).find(names)!.at);
  }

  /** Reads the params again, so only what is kept is looked for. */
  #refuseOf(ordinal: number, place: number, why: string): void {
    if (this.#faults.isFull) return;
    const reference = this.#readReferences(ordinal)[place - this.#references.startOf(ordinal)]!;
    this.#refuse(`${this.#at(ordinal)}.params`, reference, why);
  }

  #readReferences(ordinal: number): readonly Reference[] {
    return scanReferences(JSON.parse(this.#tasks[ordinal]!.params!)).references;
  }

  #refuse(field: string, reference: Reference, why: string): void {
    const written = writeReference(reference.source, reference.pointer);
    this.#faults.add(fieldAt(field, reference.at), `${quote(written)} ${why}`, "INVALID_REFERENCE");
  }

  #at = (ordinal: number): string => `${this.#root}.tasks[${ordinal}]`;
  #key = (ordinal: number): string => this.#tasks[ordinal]!.key;
  #dependsOn = (ordinal: number): readonly string[] => this.#tasks[ordinal]!.dependsOn;
}

/** Tasks that can end SKIPPED in a run that succeeds: those that wait for a failure, and what needs them to succeed. */
function findSkippable(tasks: readonly TaskDefinition[], graph: Graph, order: Int32Array): Uint8Array {
  const isSkippable = new Uint8Array(tasks.length);
  for (const ordinal of order) {
    const { when } = tasks[ordinal]!;
    const mayLack = () => neighbours(graph.dependencies, ordinal).some((dependency) => isSkippable[dependency] === 1);
    if (when === "any_failed" || (when === "all_succeeded" && mayLack())) isSkippable[ordinal] = 1;
  }
  return isSkippable;
}

function nameCycle(keys: readonly string[]): string {
  if (keys.length <= MAX_NAMED) return [...keys, keys[0]].join(" -> ");
  return `${keys.slice(0, MAX_NAMED).join(" -> ")} -> … (${keys.length} tasks) -> ${keys[0]}`;
}

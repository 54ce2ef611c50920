import type { Target } from "./reference-scan.ts";

/** Stand in for an ordinal. */
export const INPUT = -1;
export const NO_TASK = -2;

/**
 * What the tasks of a definition refer to, by ordinals in flat arrays, task by task. To keep an object for each of
 * 100,000 references takes longer than to read again the params of the few that are wrong.
 */
export class TaskReferences {
  readonly #ordinalOf: ReadonlyMap<string, number>;
  readonly #starts: number[] = [];
  readonly #sources: number[] = [];
  readonly #hasDefault: boolean[] = [];

  constructor(ordinalOf: ReadonlyMap<string, number>) {
    this.#ordinalOf = ordinalOf;
  }

  /** References added from here on belong to the next task. */
  nextTask(): void {
    this.#starts.push(this.#sources.length);
  }

  add({ task }: Target, hasDefault: boolean): void {
    this.#sources.push(task === undefined ? INPUT : (this.#ordinalOf.get(task) ?? NO_TASK));
    this.#hasDefault.push(hasDefault);
  }

  /** The place of a task's first reference; the last stands before the start of the next task. */
  startOf(ordinal: number): number {
    return this.#starts[ordinal] ?? this.#sources.length;
  }

  /** The task that a reference names, or INPUT or NO_TASK. */
  sourceAt(place: number): number {
    return this.#sources[place]!;
  }

  hasDefaultAt(place: number): boolean {
    return this.#hasDefault[place]!;
  }
}

import fc from "fast-check";
import type { Definition, OnFailure, When } from "../src/definition.ts";
import { validateDefinition } from "../src/validate-definition.ts";

/** A graph by ordinals. */
export interface GraphSpec {
  readonly onFailure: OnFailure;
  readonly tasks: readonly TaskSpec[];
}

export interface TaskSpec {
  readonly dependsOn: readonly number[];
  readonly when: When;
  readonly allowFailure: boolean;
}

export function givenDefinition(spec: GraphSpec): Definition {
  return validateDefinition({
    name: "given",
    onFailure: spec.onFailure,
    tasks: spec.tasks.map((task, ordinal) => ({
      key: `t${ordinal}`,
      handler: "work",
      dependsOn: task.dependsOn.map((dependency) => `t${dependency}`),
      when: task.when,
      allowFailure: task.allowFailure,
    })),
  });
}

/** Any graph without circles of at most `maxTasks`, its ordinals in any order. */
export function anyGraph(maxTasks = 12): fc.Arbitrary<GraphSpec> {
  return fc.integer({ min: 1, max: maxTasks }).chain((count) => {
    const indexes = Array.from({ length: count }, (_, index) => index);
    return fc
      .record({
        onFailure: fc.constantFrom<OnFailure>("stop", "finish"),
        order: fc.shuffledSubarray(indexes, { minLength: count }),
        tasks: fc.tuple(...indexes.map((index) => anyTask(indexes.slice(0, index)))),
      })
      .map(({ onFailure, order, tasks }) => ({ onFailure, tasks: reorder(tasks, order) }));
  });
}

function anyTask(earlier: readonly number[]): fc.Arbitrary<TaskSpec> {
  const when = fc.constantFrom<When>("all_succeeded", "all_succeeded", "all_done", "any_failed");
  return fc
    .record({
      dependsOn: fc.subarray([...earlier], { maxLength: Math.min(4, earlier.length) }),
      when,
      allowFailure: fc.boolean(),
    })
    .map((task) => (task.dependsOn.length === 0 ? { ...task, when: "all_succeeded" } : task));
}

/** Puts the task at `index` to the place `order[index]`. */
function reorder(tasks: readonly TaskSpec[], order: readonly number[]): TaskSpec[] {
  const moved: TaskSpec[] = [];
  for (const [index, task] of tasks.entries()) {
    moved[order[index]!] = { ...task, dependsOn: task.dependsOn.map((dependency) => order[dependency]!) };
  }
  return moved;
}

import { checkGraph, type Tasks } from "./check-graph.ts";
import type { Definition, DefinitionInput, OnFailure, TaskDefinition } from "./definition.ts";
import { invalidField } from "./errors.ts";
import { Faults } from "./faults.ts";
import { findNameFault } from "./names.ts";
import { indexKeys, planAhead } from "./plan.ts";
import { readChoice, readConcurrency, readDuration, readNumber, readPayload, readTask } from "./read-task.ts";
import type { Reference } from "./references.ts";
import { TaskReferences } from "./task-references.ts";

const MAX_TASKS = 10_000;
const MAX_DEFINITION_LENGTH = 4 * 1024 * 1024;

const MAX_PARALLEL = 10_000;
const ON_FAILURE: readonly [OnFailure, ...OnFailure[]] = ["stop", "finish"];

/**
 * Checks a definition and fills its defaults in. Throws one `MeshError` whose violations, at most 20, name each wrong
 * field by its path below `root`, such as `definition.tasks[3].depends_on[0]`.
 */
export function validateDefinition(input: DefinitionInput, root = "definition"): Definition {
  const faults = new Faults();
  faults.check(findNameFault(input.name ?? ""), root, "name");
  const tasks = readTasks(input, root, faults);
  const references: readonly Reference[] =
    input.output === undefined ? [] : readPayload(input.output, `${root}.output`, faults);
  const definition: Definition = {
    name: input.name ?? "",
    tasks: tasks.all,
    output: input.output,
    deadlineMs: readDuration(input.deadline, root, "deadline", faults),
    onFailure: readChoice(input.onFailure, ON_FAILURE, root, "on_failure", faults),
    maxParallel: readNumber(input.maxParallel, { min: 0, max: MAX_PARALLEL, absent: 0 }, root, "max_parallel", faults),
    concurrency: readConcurrency(input.concurrency, `${root}.concurrency`, faults),
  };
  const sorted = faults.isFull ? undefined : checkGraph(tasks, references, root, faults);
  faults.throwIfAny();
  if (sorted !== undefined) planAhead(definition, tasks.ordinalOf, sorted);
  return definition;
}

function readTasks(input: DefinitionInput, root: string, faults: Faults): Tasks {
  const tasks = input.tasks ?? [];
  if (tasks.length === 0) faults.add(`${root}.tasks`, "must hold 1 to 10000 tasks");
  const payloads = tasks.reduce((sum, task) => sum + (task.params?.length ?? 0), input.output?.length ?? 0);
  // What is too large is not looked into.
  if (tasks.length > MAX_TASKS) throw invalidField(`${root}.tasks`, "must hold 1 to 10000 tasks", "TOO_LARGE");
  if (payloads > MAX_DEFINITION_LENGTH) throw invalidField(root, "must be at most 4 MiB", "TOO_LARGE");
  const ordinalOf = indexKeys(tasks);
  const references = new TaskReferences(ordinalOf);
  const all: TaskDefinition[] = [];
  for (let ordinal = 0; ordinal < tasks.length && !faults.isFull; ordinal++) {
    all.push(readTask(tasks[ordinal]!, `${root}.tasks[${ordinal}]`, references, faults));
  }
  return { all, ordinalOf, references };
}

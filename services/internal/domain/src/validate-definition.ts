import { checkGraph } from "./check-graph.ts";
import type { Definition, DefinitionInput, OnFailure } from "./definition.ts";
import { invalidField } from "./errors.ts";
import { Faults } from "./faults.ts";
import { findNameFault } from "./names.ts";
import { planAhead } from "./plan.ts";
import {
  type ReadTask,
  readChoice,
  readConcurrency,
  readDuration,
  readNumber,
  readPayload,
  readTask,
} from "./read-task.ts";
import type { Reference } from "./references.ts";

export const MAX_TASKS = 10_000;
export const MAX_DEFINITION_LENGTH = 4 * 1024 * 1024;

const MAX_PARALLEL = 10_000;
const ON_FAILURE: readonly [OnFailure, ...OnFailure[]] = ["stop", "finish"];

/**
 * Checks a definition and fills its defaults in. Throws one `MeshError` whose violations, at most 20, name each wrong
 * field by its path below `root`, such as `definition.tasks[3].depends_on[0]`.
 */
export function validateDefinition(input: DefinitionInput, root = "definition"): Definition {
  const faults = new Faults();
  faults.check(findNameFault(input.name ?? ""), root, "name");
  const reads = readTasks(input, root, faults);
  const references: readonly Reference[] =
    input.output === undefined ? [] : readPayload(input.output, `${root}.output`, faults);
  const definition: Definition = {
    name: input.name ?? "",
    tasks: reads.map((read) => read.task),
    output: input.output,
    deadlineMs: readDuration(input.deadline, root, "deadline", faults),
    onFailure: readChoice(input.onFailure, ON_FAILURE, root, "on_failure", faults),
    maxParallel: readNumber(input.maxParallel, { min: 0, max: MAX_PARALLEL, absent: 0 }, root, "max_parallel", faults),
    concurrency: readConcurrency(input.concurrency, `${root}.concurrency`, faults),
  };
  const graph = faults.isFull ? undefined : checkGraph(reads, references, root, faults);
  faults.throwIfAny();
  if (graph !== undefined) planAhead(definition, graph);
  return definition;
}

function readTasks(input: DefinitionInput, root: string, faults: Faults): ReadTask[] {
  const tasks = input.tasks ?? [];
  if (tasks.length === 0) faults.add(`${root}.tasks`, "must hold 1 to 10000 tasks");
  const payloads = tasks.reduce((sum, task) => sum + (task.params?.length ?? 0), input.output?.length ?? 0);
  // What is too large is not looked into.
  if (tasks.length > MAX_TASKS) throw invalidField(`${root}.tasks`, "must hold 1 to 10000 tasks", "TOO_LARGE");
  if (payloads > MAX_DEFINITION_LENGTH) throw invalidField(root, "must be at most 4 MiB", "TOO_LARGE");
  const reads: ReadTask[] = [];
  for (const [index, task] of tasks.entries()) {
    if (faults.isFull) break;
    reads.push(readTask(task, `${root}.tasks[${index}]`, faults));
  }
  return reads;
}

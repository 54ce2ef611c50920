import { UsageError } from "./usage-error.ts";
import { readList, readRecord, readText, readTextList } from "./wfformat-fields.ts";

/** A workflow read from a WfFormat file, ready to be registered. */
export interface ImportedWorkflow {
  readonly name: string;
  readonly tasks: readonly ImportedTask[];
  readonly edgeCount: number;
}

export interface ImportedTask {
  readonly key: string;
  readonly handler: string;
  readonly dependsOn: readonly string[];
  readonly params: { readonly runtimeMs: number; readonly program: string };
}

/** Longest name, key or handler, in bytes of ASCII. */
const MAX_NAME = 128;

/**
 * Turns a WfFormat 1.5 document (https://github.com/wfcommons/WfFormat) into a workflow: one task for each task of the
 * specification, its parents as dependencies, its category as handler, its measured runtime as a parameter.
 */
export function readWfFormat(document: unknown, name?: string): ImportedWorkflow {
  const root = readRecord(document, "the file");
  if (root.schemaVersion !== "1.5") {
    throw new UsageError(`schemaVersion is ${JSON.stringify(root.schemaVersion)}, and only WfFormat 1.5 is read`);
  }
  const workflow = readRecord(root.workflow, "workflow");
  const specification = readRecord(workflow.specification, "workflow.specification");
  const runtimes = readRuntimes(workflow.execution);
  const nodes = readList(specification.tasks, "workflow.specification.tasks").map(readNode);
  const keys = chooseKeys(nodes.map((node) => node.id));

  const tasks = nodes.map((node, index): ImportedTask => {
    const handler = validName(withoutTrailingId(node.name));
    const measured = runtimes.get(node.id);
    return {
      key: keys.get(node.id)!,
      handler,
      dependsOn: [...new Set(node.parents)].map((parent) => {
        const key = keys.get(parent);
        if (key !== undefined) return key;
        throw new UsageError(`workflow.specification.tasks[${index}].parents names ${JSON.stringify(parent)}, no task`);
      }),
      params: { runtimeMs: measured?.runtimeMs ?? 0, program: measured?.program ?? handler },
    };
  });
  return {
    name: validName(name ?? readText(root.name, "name")),
    tasks,
    edgeCount: tasks.reduce((count, task) => count + task.dependsOn.length, 0),
  };
}

/** "mProject_ID0000001" is one mProject: what is left names the kind of work. */
export function withoutTrailingId(name: string): string {
  return name.replace(/[_.-](?:ID)?[0-9]+$/, "");
}

/** Replaces what a name may not hold, and cuts what is too long. */
export function validName(text: string): string {
  return text.replace(/[^A-Za-z0-9._/-]/g, "-").slice(0, MAX_NAME) || "unnamed";
}

interface Node {
  readonly id: string;
  readonly name: string;
  readonly parents: readonly string[];
}

function readNode(value: unknown, index: number): Node {
  const path = `workflow.specification.tasks[${index}]`;
  const node = readRecord(value, path);
  return {
    id: readText(node.id, `${path}.id`),
    name: readText(node.name, `${path}.name`),
    parents: readTextList(node.parents, `${path}.parents`),
  };
}

/** A valid key for each id; two ids that would get one key are told apart by a number. */
function chooseKeys(ids: readonly string[]): Map<string, string> {
  const keys = new Map<string, string>();
  const taken = new Set<string>();
  for (const [index, id] of ids.entries()) {
    if (keys.has(id)) {
      throw new UsageError(`workflow.specification.tasks[${index}].id ${JSON.stringify(id)} is there twice`);
    }
    let key = validName(id);
    for (let twin = 2; taken.has(key); twin++) {
      const suffix = `-${twin}`;
      key = validName(id).slice(0, MAX_NAME - suffix.length) + suffix;
    }
    taken.add(key);
    keys.set(id, key);
  }
  return keys;
}

interface Measured {
  readonly runtimeMs: number;
  readonly program: string | undefined;
}

/** What the execution measured, by id of the task. A file without an execution has none. */
function readRuntimes(execution: unknown): Map<string, Measured> {
  const measured = new Map<string, Measured>();
  if (execution === undefined) return measured;
  const tasks = readList(readRecord(execution, "workflow.execution").tasks, "workflow.execution.tasks");
  for (const [index, value] of tasks.entries()) {
    const path = `workflow.execution.tasks[${index}]`;
    const task = readRecord(value, path);
    const seconds = task.runtimeInSeconds;
    if (typeof seconds !== "number" || !(seconds >= 0)) {
      throw new UsageError(`${path}.runtimeInSeconds must be a number of at least 0`);
    }
    measured.set(readText(task.id, `${path}.id`), {
      runtimeMs: Math.round(seconds * 1_000),
      program: findProgram(task.command),
    });
  }
  return measured;
}

/** Some traces hold a whole shell script in place of a program: that is left to the handler's name. */
function findProgram(command: unknown): string | undefined {
  if (command === undefined) return undefined;
  const program = (command as { program?: unknown } | null)?.program;
  return typeof program === "string" && /^[A-Za-z0-9._/-]{1,128}$/.test(program) ? program : undefined;
}

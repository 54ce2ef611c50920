import { createHash } from "node:crypto";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type Definition,
  DefinitionSchema,
  OnConflict,
  OnFailure,
  type TaskDefinitionSchema,
  When,
} from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { AnyTask } from "./define-task.ts";
import type { AnyWorkflow, Graph, PlacedTask } from "./define-workflow.ts";
import { MeshError } from "./errors.ts";
import { writeParams } from "./params.ts";

const encoder = new TextEncoder();
const compiled = new WeakMap<Graph, Compiled>();

interface Compiled {
  readonly definition: Definition;
  /** SHA-256 of the message, in hex. The server's hash is of its own canonical form. */
  readonly hash: string;
}

/** The definition that the server registers. The same workflow compiles to the same bytes. */
export function compileDefinition(workflow: AnyWorkflow): Definition {
  return compile(workflow).definition;
}

/** Identifies a definition within this process. */
export function definitionHash(workflow: AnyWorkflow): string {
  return compile(workflow).hash;
}

function compile(workflow: AnyWorkflow): Compiled {
  const known = compiled.get(workflow.graph);
  if (known !== undefined) return known;
  const { graph, name } = workflow;
  const { deadline, onFailure, maxParallel, concurrency } = graph.options;
  const definition = create(DefinitionSchema, {
    name,
    tasks: [...graph.tasks].map(([key, placed]) => compileTask(key, placed, graph)),
    ...(graph.output !== undefined && {
      outputPayload: {
        case: "outputJson" as const,
        value: encoder.encode(writeParams(graph.output, graph.owner, "output")),
      },
    }),
    ...(deadline !== undefined && { deadline }),
    ...(onFailure !== undefined && { onFailure: ON_FAILURE[onFailure] }),
    ...(maxParallel !== undefined && { maxParallel }),
    ...(concurrency !== undefined && {
      concurrency: {
        key: writeKey(concurrency.key, graph, "concurrency.key"),
        limit: concurrency.limit ?? 1,
        ...(concurrency.onConflict && { onConflict: ON_CONFLICT[concurrency.onConflict] }),
      },
    }),
  });
  const hash = createHash("sha256").update(toBinary(DefinitionSchema, definition)).digest("hex");
  const result = { definition, hash };
  compiled.set(graph, result);
  return result;
}

function compileTask(key: string, placed: PlacedTask, graph: Graph): MessageInitShape<typeof TaskDefinitionSchema> {
  const { task, params, options } = placed;
  const { timeout, heartbeatTimeout, startTimeout, priority, queue, requires, exclusive } = {
    ...task.settings,
    ...options,
  };
  const timeouts = {
    ...(startTimeout !== undefined && { scheduleToStart: startTimeout }),
    ...(timeout !== undefined && { startToClose: timeout }),
    ...(heartbeatTimeout !== undefined && { heartbeat: heartbeatTimeout }),
  };
  const retry = compileRetry(task, options);
  return {
    key,
    handler: task.name,
    dependsOn: dependencies(key, placed, graph),
    ...(params !== undefined && {
      paramsPayload: {
        case: "paramsJson" as const,
        value: encoder.encode(writeParams(params, graph.owner, `tasks.${key}.params`)),
      },
    }),
    ...(retry && { retry }),
    ...(Object.keys(timeouts).length > 0 && { timeouts }),
    ...(priority !== undefined && { priority }),
    ...(queue !== undefined && { queue }),
    ...(requires !== undefined && { requires: [...requires] }),
    ...(exclusive !== undefined && { exclusive }),
    ...(options.concurrency !== undefined && {
      concurrency: {
        key: writeKey(options.concurrency.key, graph, `tasks.${key}.concurrency.key`),
        limit: options.concurrency.limit ?? 1,
      },
    }),
    ...(options.when !== undefined && { when: WHEN[options.when] }),
    ...(options.allowFailure !== undefined && { allowFailure: options.allowFailure }),
  };
}

/** Fields that one place sets anew replace the task's, each on its own. */
function compileRetry(task: AnyTask, options: PlacedTask["options"]) {
  if (task.settings.retry === undefined && options.retry === undefined) return undefined;
  const { nonRetryable, ...rest } = { ...task.settings.retry, ...options.retry };
  return { ...rest, ...(nonRetryable !== undefined && { nonRetryable: [...nonRetryable] }) };
}

/** Those of `after`; the server adds what the params refer to. */
function dependencies(key: string, placed: PlacedTask, graph: Graph): string[] {
  const keys = new Set<string>();
  for (const node of placed.options.after ?? []) {
    if (!graph.tasks.has(node.key)) {
      const description = `waits for ${node.key}, which is a task of another workflow`;
      const field = `tasks.${key}.after`;
      throw new MeshError("UNKNOWN_TASK", `${field}: ${description}`, {
        advice: "Name a task of the same definition.",
        violations: [{ field, reason: "UNKNOWN_TASK", description }],
      });
    }
    keys.add(node.key);
  }
  return [...keys];
}

/** A plain key stays as it is; one that refers to the input is the reference's JSON text. */
function writeKey(key: unknown, graph: Graph, path: string): string {
  return typeof key === "string" ? key : writeParams(key, graph.owner, path);
}

const WHEN = {
  all_succeeded: When.ALL_SUCCEEDED,
  all_done: When.ALL_DONE,
  any_failed: When.ANY_FAILED,
};
const ON_FAILURE = { stop: OnFailure.STOP, finish: OnFailure.FINISH };
const ON_CONFLICT = {
  queue: OnConflict.QUEUE,
  cancel_oldest: OnConflict.CANCEL_OLDEST,
  refuse: OnConflict.REFUSE,
};

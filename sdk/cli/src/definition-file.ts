import { create, type DescMessage, fromJson, type JsonValue, type MessageShape } from "@bufbuild/protobuf";
import { type Definition, DefinitionSchema, TaskDefinitionSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { isObject, type LosslessJson, parseLossless } from "./lossless-json.ts";
import { UsageError } from "./usage-error.ts";

type Members = { [key: string]: LosslessJson };

/**
 * Reads a definition as people write it: protobuf JSON, in which `params` of a task and `output` are plain JSON of any
 * form. Those two are sent as text, since a `google.protobuf.Value` would lose digits of 9007199254740993.
 */
export function readDefinition(text: string, what: string): Definition {
  const { tasks, output, ...rest } = readMembers(text, what);
  if (tasks !== undefined && !Array.isArray(tasks)) throw new UsageError(`${what}: tasks must be a list`);
  const definition = readMessage(DefinitionSchema, rest, what);
  definition.tasks = (tasks ?? []).map((task, index) => readTask(task, `${what}: tasks[${index}]`));
  if (output !== undefined) definition.outputPayload = { case: "outputJson", value: toBytes(output) };
  return definition;
}

function readTask(value: LosslessJson, path: string) {
  if (!isObject(value)) throw new UsageError(`${path} must be an object`);
  const { params, ...rest } = value;
  const task = readMessage(TaskDefinitionSchema, rest, path);
  if (params === undefined) return task;
  if (task.paramsPayload.case !== undefined) throw new UsageError(`${path} has both params and params_json`);
  return create(TaskDefinitionSchema, { ...task, paramsPayload: { case: "paramsJson", value: toBytes(params) } });
}

function readMembers(text: string, what: string): Members {
  let value: LosslessJson;
  try {
    value = parseLossless(text);
  } catch (cause) {
    const why = cause instanceof RangeError ? "it is nested too deep" : (cause as Error).message;
    throw new UsageError(`${what} is not JSON: ${why}`, { cause });
  }
  if (isObject(value)) return value;
  throw new UsageError(`${what} must hold one JSON object: a definition with name and tasks`);
}

/** Names are taken in snake_case and in camelCase; what is unknown is an error, since it may be a slip of the pen. */
function readMessage<D extends DescMessage>(schema: D, members: Members, path: string): MessageShape<D> {
  try {
    return fromJson(schema, JSON.parse(JSON.stringify(members)) as JsonValue);
  } catch (cause) {
    throw new UsageError(`${path}: ${(cause as Error).message}`, {
      cause,
      advice: "The fields are those of runmesh.workflow.v1.Definition, in snake_case or camelCase.",
    });
  }
}

function toBytes(value: LosslessJson): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(value));
}

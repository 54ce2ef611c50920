import type { Handler, TaskContext } from "@runmesh/client";
import { validate } from "@runmesh/client/internal";
import { CheckFailedError } from "./failure.ts";

/** An inline output; what is larger fails, and is not tried again. */
const MAX_OUTPUT = 256 * 1024;

/**
 * Runs a handler: input checked before, output checked after, and answered as JSON text. Throws what the handler threw
 * or `CheckFailedError`. `onSettled` is called when the handler has ended, before its output is checked.
 */
export async function runHandler(
  handler: Handler,
  input: unknown,
  context: TaskContext,
  onSettled: () => void,
): Promise<Uint8Array<ArrayBuffer>> {
  // What is not a promise is not awaited: a turn of the loop for each of three steps would show.
  let checked = check(handler.definition.input, input, "input");
  if (isPromise(checked)) checked = await checked;
  let answer: unknown;
  try {
    answer = handler.run(checked, context);
    if (isPromise(answer)) answer = await answer;
  } finally {
    onSettled();
  }
  let output = check(handler.definition.output, answer, "output");
  if (isPromise(output)) output = await output;
  return writeOutput(output);
}

function check(schema: Handler["definition"]["input"], value: unknown, root: string): unknown {
  try {
    const checked = validate(schema, value, root);
    return checked instanceof Promise ? checked.catch(refuse) : checked;
  } catch (thrown) {
    return refuse(thrown);
  }
}

function refuse(thrown: unknown): never {
  throw CheckFailedError.from(thrown);
}

function writeOutput(output: unknown): Uint8Array<ArrayBuffer> {
  let text: string | undefined;
  try {
    text = JSON.stringify(output) ?? "null";
  } catch (cause) {
    throw new CheckFailedError("INVALID_PAYLOAD", `the output is not JSON: ${(cause as Error).message}`, cause);
  }
  // Small ones share memory that Node has at hand, which an encoder would allocate for each.
  const json = Buffer.from(text);
  if (json.length <= MAX_OUTPUT) return json;
  throw new CheckFailedError("TOO_LARGE", `the output is ${json.length} bytes of JSON; at most ${MAX_OUTPUT} are kept`);
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === "function";
}

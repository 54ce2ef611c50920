import {
  type AnyWorkflow,
  type ChildOptions,
  type ChildRun,
  type DurableContext,
  type ResultOptions,
  ResultTimeoutError,
  RunFailedError,
} from "@runmesh/client";
import { validate } from "@runmesh/client/internal";
import { type Step, type StepError, StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import { type Answer, type Call, failedWith } from "./calls.ts";
import { readDuration } from "./duration.ts";
import { CheckFailedError, readFailure, StepFailedError } from "./failure.ts";
import { Journal, type JournalStore } from "./journal.ts";

/** What durable calls need of the mesh, and of the attempt that makes them. */
export interface DurableHost {
  readonly store: JournalStore;
  readonly isFirst: boolean;
  /** Sleeps up to this long stay in the process. */
  readonly inProcessMs: number;
  /** Begins each idempotency key: the run and the task. */
  readonly scope: string;
  startChild(call: Call, workflow: AnyWorkflow | string, input: unknown, options: StartOptions): Promise<Step>;
  onSuspended(): void;
}

export type StartOptions = ChildOptions & { readonly version?: number };

/** The durable calls of one attempt. */
export interface Durable extends DurableContext {
  readonly journal: Journal;
}

const MAX_VALUE = 256 * 1024;
const MAX_NAME = 128;
const SIGNAL_NAME = /^[A-Za-z0-9._/-]{1,128}$/;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function createDurable(host: DurableHost): Durable {
  const journal = new Journal(host);

  async function step<T>(name: string, fn: (idempotencyKey: string) => Promise<T> | T): Promise<never> {
    checkName(name);
    if (typeof fn !== "function") throw invalid(`step ${name} takes a function, not ${show(fn)}`);
    let thrown: unknown;
    const answer = await journal.call(StepKind.STEP, name, (call) => {
      const loose = journal.takeLoose(call);
      void journal.run(call, async () => {
        if (loose !== undefined) return loose;
        try {
          return { valueJson: writeValue(await fn(keyOf(host.scope, call)), name) };
        } catch (error) {
          thrown = error;
          return failedWith(readFailure(error));
        }
      });
    });
    if (answer.error === undefined) return readValue(answer) as never;
    const error = new StepFailedError(answer.error, thrown);
    journal.gave(error, answer.position);
    throw error;
  }

  async function sleep(duration: string): Promise<void> {
    const ms = checkDuration(duration, "sleep");
    await journal.call(StepKind.SLEEP, "sleep", (call) => {
      if (ms <= host.inProcessMs) void journal.run(call, () => rest(ms));
      else journal.wait(call, { durationMs: ms });
    });
  }

  async function waitForSignal(name: string, options: SignalOptions = {}): Promise<never> {
    if (typeof name !== "string" || !SIGNAL_NAME.test(name)) {
      throw invalid(`a signal's name has 1 to 128 characters of [A-Za-z0-9._/-], and is not ${show(name)}`);
    }
    const { schema, timeout } = options;
    const answer = await journal.call(StepKind.SIGNAL, name, waitUpTo(journal, timeout));
    if (answer.timedOut) return undefined as never;
    // Nothing is what a time-out answers: a signal that carries nothing is null.
    const payload = readValue(answer) ?? null;
    if (schema === undefined) return payload as never;
    try {
      return (await validate(schema, payload, `signal.${name}`)) as never;
    } catch (error) {
      throw CheckFailedError.from(error);
    }
  }

  async function startRun(workflow: AnyWorkflow | string, input?: unknown, options: StartOptions = {}) {
    const name = typeof workflow === "string" ? workflow : workflow?.name;
    if (typeof name !== "string") throw invalid(`startRun takes a workflow or the name of one, not ${show(workflow)}`);
    if (options.dueTime !== undefined && !(options.dueTime.getTime() > 0)) {
      throw invalid(`dueTime is a Date after 1970, not ${show(options.dueTime)}`);
    }
    const start = (call: Call) => host.startChild(call, workflow, input, options);
    const answer = await journal.call(
      StepKind.CHILD,
      name,
      (call) => void journal.runRecorded(call, () => start(call)),
      start,
    );
    return createChild(journal, name, answer.position, String(answer.childRunId));
  }

  return {
    journal,
    step: quietly(step),
    sleep: quietly(sleep),
    waitForSignal: quietly(waitForSignal),
    startRun: quietly(startRun),
  } as unknown as Durable;
}

/**
 * A handler may begin calls and await them later, or not: when the attempt is aborted all of them fail, and those that
 * nobody awaits any more must not end the process.
 */
function quietly<A extends unknown[], T>(call: (...args: A) => Promise<T>): (...args: A) => Promise<T> {
  return (...args) => {
    const answer = call(...args);
    answer.catch(() => undefined);
    return answer;
  };
}

function waitUpTo(journal: Journal, timeout: string | undefined, childPosition?: number): (call: Call) => void {
  const durationMs = timeout === undefined ? undefined : checkDuration(timeout, "timeout");
  return (call) =>
    journal.wait(call, {
      ...(durationMs !== undefined && { durationMs }),
      ...(childPosition !== undefined && { childPosition }),
    });
}

interface SignalOptions {
  readonly schema?: Parameters<typeof validate>[0];
  readonly timeout?: string;
}

function createChild(journal: Journal, workflow: string, childPosition: number, id: string): ChildRun<unknown> {
  let result: Promise<unknown> | undefined;

  const getResult = quietly(async (timeout?: string): Promise<unknown> => {
    const answer = await journal.call(StepKind.RESULT, workflow, waitUpTo(journal, timeout, childPosition));
    if (answer.timedOut) {
      const late = new ResultTimeoutError(id, timeout!);
      journal.gave(late, answer.position);
      throw late;
    }
    if (answer.error === undefined) return readValue(answer);
    const error = childError(id, answer.error);
    journal.gave(error, answer.position);
    throw error;
  });

  return {
    id,
    // Each wait with a time-out is a call of its own, since the next may end otherwise.
    result({ timeout }: ResultOptions = {}) {
      if (timeout !== undefined) return getResult(timeout);
      result ??= getResult();
      return result;
    },
  };
}

/** A child that succeeded is not started anew: its output would be what the parent cannot take again. */
function childError(runId: string, { state, taskKey, type: errorType, message }: StepError): Error {
  if (state === "SUCCEEDED") return new CheckFailedError(errorType, message);
  return new RunFailedError({
    runId,
    state: (state || "FAILED") as RunFailedError["state"],
    ...(taskKey && { taskKey }),
    ...(errorType && { errorType, message }),
  });
}

/** Ends after the time, or with the attempt: then it is not recorded. */
const rest = (ms: number): Promise<Answer> =>
  new Promise((resolve) => {
    setTimeout(() => resolve({}), ms);
  });

const keyOf = (scope: string, { name, occurrence }: Call): string =>
  `${scope}/${encodeURIComponent(name)}/${occurrence}`;

function writeValue(value: unknown, name: string): Uint8Array<ArrayBuffer> {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    const why = (cause as Error).message;
    throw new CheckFailedError("INVALID_PAYLOAD", `what step ${name} answered is not JSON: ${why}`, cause);
  }
  // Nothing, and not null, is recorded as nothing.
  const json = encoder.encode(text ?? "");
  if (json.length <= MAX_VALUE) return json;
  throw new CheckFailedError(
    "TOO_LARGE",
    `step ${name} answered ${json.length} bytes of JSON; at most ${MAX_VALUE} are recorded: answer where it is kept instead`,
  );
}

const readValue = ({ valueJson }: Step): unknown =>
  valueJson.length === 0 ? undefined : JSON.parse(decoder.decode(valueJson));

function checkName(name: unknown): asserts name is string {
  const isFine =
    typeof name === "string" &&
    name !== "" &&
    !name.includes("\0") &&
    name.isWellFormed() &&
    encoder.encode(name).length <= MAX_NAME;
  if (!isFine) throw invalid(`a step's name has 1 to 128 bytes of UTF-8 without NUL, and is not ${show(name)}`);
}

/** A faulty duration is not tried again: it is faulty on each pass. */
function checkDuration(duration: string, what: string): number {
  try {
    return readDuration(duration);
  } catch (cause) {
    throw new CheckFailedError("INVALID_FIELD", `${what}: ${(cause as Error).message}`, cause);
  }
}

const invalid = (message: string) => new CheckFailedError("INVALID_FIELD", message);

const show = (value: unknown): string => (typeof value === "string" ? JSON.stringify(value) : String(value));

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
import { type Step, StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import { readDuration } from "./duration.ts";
import { CheckFailedError, isNonRetryable, nonRetryable, readFailure } from "./failure.ts";
import { type Answer, type Call, Journal, type JournalStore } from "./journal.ts";

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

/** A failure that was recorded: what `name` says is the type of what the step threw. */
class StepFailedError extends Error {
  constructor(type: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = type;
  }
}

export function createDurable(host: DurableHost): Durable {
  const journal = new Journal(host);

  async function step<T>(name: string, fn: (idempotencyKey: string) => Promise<T> | T): Promise<never> {
    checkName(name);
    let thrown: unknown;
    const answer = await journal.call(StepKind.STEP, name, (call) => {
      void journal.run(call, async () => {
        try {
          const value = await fn(keyOf(host.scope, call));
          return { valueJson: writeValue(value, name) };
        } catch (error) {
          if (!isNonRetryable(error)) throw error;
          thrown = error;
          const { type, message } = readFailure(error);
          return { error: { $typeName: "runmesh.lease.v1.StepError", type, message, state: "", taskKey: "" } };
        }
      });
    });
    if (answer.error === undefined) return readValue(answer) as never;
    const error = new StepFailedError(answer.error.type, answer.error.message, thrown);
    journal.gave(error, answer.position);
    throw nonRetryable(error);
  }

  async function sleep(duration: string): Promise<void> {
    const ms = readDuration(duration);
    await journal.call(StepKind.SLEEP, "sleep", (call) => {
      if (ms <= host.inProcessMs) void journal.run(call, () => rest(ms));
      else journal.wait(call, { duration: toDuration(ms) });
    });
  }

  async function waitForSignal(name: string, options: SignalOptions = {}): Promise<never> {
    if (!SIGNAL_NAME.test(name)) throw invalidName(name, "1 to 128 characters of [A-Za-z0-9._/-]");
    const { schema, timeout } = options;
    const ms = timeout === undefined ? undefined : readDuration(timeout);
    const answer = await journal.call(StepKind.SIGNAL, name, (call) => {
      journal.wait(call, ms === undefined ? {} : { duration: toDuration(ms) });
    });
    if (answer.timedOut) return undefined as never;
    const payload = readValue(answer);
    if (schema === undefined) return payload as never;
    try {
      return (await validate(schema, payload, `signal.${name}`)) as never;
    } catch (error) {
      throw CheckFailedError.from(error);
    }
  }

  async function startRun(workflow: AnyWorkflow | string, input?: unknown, options: StartOptions = {}) {
    const name = typeof workflow === "string" ? workflow : workflow.name;
    const start = (call: Call) => host.startChild(call, workflow, input, options);
    const answer = await journal.call(
      StepKind.CHILD,
      name,
      (call) => void journal.runRecorded(call, () => start(call)),
      start,
    );
    return createChild(journal, name, answer.position, String(answer.childRunId));
  }

  return { journal, step, sleep, waitForSignal, startRun } as Durable;
}

interface SignalOptions {
  readonly schema?: Parameters<typeof validate>[0];
  readonly timeout?: string;
}

function createChild(journal: Journal, workflow: string, childPosition: number, id: string): ChildRun<unknown> {
  let result: Promise<unknown> | undefined;

  async function getResult(timeout?: string): Promise<unknown> {
    const ms = timeout === undefined ? undefined : readDuration(timeout);
    const answer = await journal.call(StepKind.RESULT, workflow, (call) => {
      journal.wait(call, ms === undefined ? { childPosition } : { childPosition, duration: toDuration(ms) });
    });
    if (answer.timedOut) {
      const late = new ResultTimeoutError(id, timeout!);
      journal.gave(late, answer.position);
      throw late;
    }
    if (answer.error === undefined) return readValue(answer);
    const { state, taskKey, type: errorType, message } = answer.error;
    const ended = (state || "FAILED") as RunFailedError["state"];
    const error = new RunFailedError({
      runId: id,
      state: ended,
      ...(taskKey && { taskKey, errorType, message }),
    });
    journal.gave(error, answer.position);
    throw error;
  }

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
    throw new CheckFailedError("INVALID_PAYLOAD", `what step ${name} answered is not JSON`, cause);
  }
  // Nothing, and not null, is recorded as nothing.
  const json = encoder.encode(text ?? "");
  if (json.length <= MAX_VALUE) return json;
  throw new CheckFailedError(
    "TOO_LARGE",
    `step ${name} answered ${json.length} bytes of JSON; at most ${MAX_VALUE} are recorded`,
  );
}

const readValue = ({ valueJson }: Step): unknown =>
  valueJson.length === 0 ? undefined : JSON.parse(decoder.decode(valueJson));

function checkName(name: string): void {
  const isFine = name !== "" && !name.includes("\0") && name.isWellFormed() && encoder.encode(name).length <= MAX_NAME;
  if (!isFine) throw invalidName(name, "1 to 128 bytes of UTF-8 without NUL");
}

const invalidName = (name: string, wanted: string) =>
  new CheckFailedError("INVALID_FIELD", `a name has ${wanted}, not ${JSON.stringify(name)}`);

function toDuration(ms: number) {
  const seconds = Math.floor(ms / 1_000);
  return {
    $typeName: "google.protobuf.Duration" as const,
    seconds: BigInt(seconds),
    nanos: Math.round((ms - seconds * 1_000) * 1e6),
  };
}

import type {
  Concurrency,
  ConcurrencyInput,
  RetryPolicy,
  RetryPolicyInput,
  TaskDefinition,
  TaskDefinitionInput,
  Timeouts,
  TimeoutsInput,
} from "./definition.ts";
import { parseDuration } from "./duration.ts";
import type { Faults } from "./faults.ts";
import { fieldAt } from "./json-pointer.ts";
import { readJson } from "./json-text.ts";
import { exceedsUtf8, findCapabilityFault, findKeyFault, findNameFault, findTextFault } from "./names.ts";
import { type Reference, scanReferences, walkReferences, writePath } from "./reference-scan.ts";
import { mayHoldReferences } from "./references.ts";
import type { TaskReferences } from "./task-references.ts";

const MAX_PAYLOAD_BYTES = 256 * 1024;
const DEFAULT_QUEUE = "default";

const DEFAULT_MAX_ATTEMPTS = 3;
const DEFAULT_MAX_LOST = 20;
const DEFAULT_INITIAL_MS = 1000;
const DEFAULT_MAX_MS = 60_000;
const DEFAULT_MULTIPLIER = 2;
const DEFAULT_JITTER = 0.2;
const MAX_COUNT = 10_000;
const MAX_REQUIRES = 16;
const MAX_NON_RETRYABLE = 50;
const MAX_ERROR_TYPE_BYTES = 128;
const WHEN = ["all_succeeded", "all_done", "any_failed"] as const;
const ON_CONFLICT = ["queue", "cancel_oldest", "refuse"] as const;

/** Shared by all tasks that say nothing of it. */
const DEFAULT_RETRY: RetryPolicy = {
  maxAttempts: DEFAULT_MAX_ATTEMPTS,
  maxLost: DEFAULT_MAX_LOST,
  initialMs: DEFAULT_INITIAL_MS,
  multiplier: DEFAULT_MULTIPLIER,
  maxMs: DEFAULT_MAX_MS,
  jitter: DEFAULT_JITTER,
  nonRetryable: [],
};
const NO_TIMEOUTS: Timeouts = { scheduleToStartMs: 0, startToCloseMs: 0, heartbeatMs: 0 };

/**
 * Reads one task of a definition, all but its place in the graph, and adds what it refers to; `at` is its path, as in
 * `definition.tasks[3]`.
 */
export function readTask(
  input: TaskDefinitionInput,
  at: string,
  references: TaskReferences,
  faults: Faults,
): TaskDefinition {
  const { key = "", handler = "", queue, params, priority, requires = [], concurrency, when } = input;
  faults.check(findNameFault(key), at, "key");
  faults.check(findNameFault(handler), at, "handler");
  if (queue) faults.check(findNameFault(queue), at, "queue");
  references.nextTask();
  if (params !== undefined) readParams(params, `${at}.params`, references, faults);
  if (requires.length > MAX_REQUIRES) faults.add(`${at}.requires`, `must hold at most ${MAX_REQUIRES} capabilities`);
  requires.forEach((each, index) => {
    faults.check(findCapabilityFault(each), at, `requires[${index}]`);
  });
  if (concurrency?.onConflict !== undefined && concurrency.onConflict !== "queue") {
    faults.add(`${at}.concurrency.on_conflict`, "is for runs only");
  }
  return {
    key,
    handler,
    dependsOn: input.dependsOn ?? [],
    params,
    retry: input.retry === undefined ? DEFAULT_RETRY : readRetry(input.retry, `${at}.retry`, faults),
    timeouts: input.timeouts === undefined ? NO_TIMEOUTS : readTimeouts(input.timeouts, `${at}.timeouts`, faults),
    priority: readNumber(priority, { min: -100, max: 100, absent: 0 }, at, "priority", faults),
    queue: queue || DEFAULT_QUEUE,
    requires: requires.length < 2 ? requires : [...new Set(requires)].sort(),
    concurrency: readConcurrency(concurrency, `${at}.concurrency`, faults),
    exclusive: input.exclusive ?? false,
    when: readChoice(when, WHEN, at, "when", faults),
    allowFailure: input.allowFailure ?? false,
  };
}

function readParams(text: string, field: string, references: TaskReferences, faults: Faults): void {
  walkReferences(readReferring(text, field, faults), {
    found: (target, hasDefault) => references.add(target, hasDefault),
    refuse: (why, path) => faults.add(fieldAt(field, writePath(path)), why, "INVALID_REFERENCE"),
  });
}

/** Checks JSON text that may hold references, and answers these. */
export function readPayload(text: string, field: string, faults: Faults): readonly Reference[] {
  const scan = scanReferences(readReferring(text, field, faults));
  for (const fault of scan.faults) faults.add(fieldAt(field, fault.at), fault.why, "INVALID_REFERENCE");
  return scan.references;
}

/** Checks JSON text; answers what it says, or undefined where it is wrong or can hold no reference. */
function readReferring(text: string, field: string, faults: Faults): unknown {
  if (exceedsUtf8(text, MAX_PAYLOAD_BYTES)) {
    faults.add(field, "must be at most 256 KiB", "TOO_LARGE");
    return undefined;
  }
  const read = readJson(text);
  if (read.ok) return mayHoldReferences(text) ? read.value : undefined;
  faults.add(field, read.why, "INVALID_PAYLOAD");
  return undefined;
}

function readRetry(input: RetryPolicyInput, at: string, faults: Faults): RetryPolicy {
  const count = { min: 0, max: MAX_COUNT };
  const maxAttempts = readNumber(
    input.maxAttempts,
    { ...count, absent: DEFAULT_MAX_ATTEMPTS },
    at,
    "max_attempts",
    faults,
  );
  const defaultMaxLost = maxAttempts === 1 ? 0 : DEFAULT_MAX_LOST;
  const initialMs = input.initialInterval
    ? readDuration(input.initialInterval, at, "initial_interval", faults)
    : DEFAULT_INITIAL_MS;
  const maxMs = input.maxInterval
    ? readDuration(input.maxInterval, at, "max_interval", faults)
    : Math.max(DEFAULT_MAX_MS, initialMs);
  if (maxMs < initialMs) faults.add(`${at}.max_interval`, "must not be less than initial_interval");
  const nonRetryable = input.nonRetryable ?? [];
  if (nonRetryable.length > MAX_NON_RETRYABLE) {
    faults.add(`${at}.non_retryable`, `must hold at most ${MAX_NON_RETRYABLE} error types`);
  }
  nonRetryable.forEach((each, index) => {
    const isLong = each === "" || exceedsUtf8(each, MAX_ERROR_TYPE_BYTES);
    faults.check(findTextFault(each) ?? (isLong ? "must be 1 to 128 bytes" : undefined), at, `non_retryable[${index}]`);
  });
  return {
    maxAttempts,
    maxLost: readNumber(input.maxLost, { ...count, absent: defaultMaxLost }, at, "max_lost", faults),
    initialMs,
    multiplier: readNumber(
      input.multiplier,
      { min: 1, max: 100, absent: DEFAULT_MULTIPLIER, real: true },
      at,
      "multiplier",
      faults,
    ),
    maxMs,
    jitter: readNumber(input.jitter, { min: 0, max: 1, absent: DEFAULT_JITTER, real: true }, at, "jitter", faults),
    nonRetryable,
  };
}

function readTimeouts(input: TimeoutsInput, at: string, faults: Faults): Timeouts {
  return {
    scheduleToStartMs: readDuration(input.scheduleToStart, at, "schedule_to_start", faults),
    startToCloseMs: readDuration(input.startToClose, at, "start_to_close", faults),
    heartbeatMs: readDuration(input.heartbeat, at, "heartbeat", faults),
  };
}

/** A key may be JSON text that holds references, to the run's input alone. */
export function readConcurrency(
  input: ConcurrencyInput | undefined,
  at: string,
  faults: Faults,
): Concurrency | undefined {
  if (input === undefined) return undefined;
  const key = input.key ?? "";
  const why = findKeyFault(key);
  faults.check(why, at, "key");
  const read = why === undefined && mayHoldReferences(key) ? readJson(key) : undefined;
  if (read?.ok) {
    const { references, faults: malformed } = scanReferences(read.value);
    for (const fault of malformed) faults.add(`${at}.key`, fault.why, "INVALID_REFERENCE");
    if (references.some(({ source }) => source !== "input")) {
      faults.add(`${at}.key`, "may refer to the input only", "INVALID_REFERENCE");
    }
  }
  return {
    key,
    limit: readNumber(input.limit || undefined, { min: 1, max: 1000, absent: 1 }, at, "limit", faults),
    onConflict: readChoice(input.onConflict, ON_CONFLICT, at, "on_conflict", faults),
  };
}

export function readDuration(text: string | undefined, at: string, name: string, faults: Faults): number {
  const duration = parseDuration(text ?? "");
  if (duration.ok) return duration.ms;
  faults.add(`${at}.${name}`, duration.why);
  return 0;
}

interface Range {
  readonly min: number;
  readonly max: number;
  readonly absent: number;
  /** Fractions are allowed. */
  readonly real?: boolean;
}

export function readNumber(value: number | undefined, range: Range, at: string, name: string, faults: Faults): number {
  if (value === undefined) return range.absent;
  if (value >= range.min && value <= range.max && (range.real || Number.isInteger(value))) return value;
  const kind = range.real ? "a number" : "a whole number";
  faults.add(`${at}.${name}`, `must be ${kind} from ${range.min} to ${range.max}`);
  return range.absent;
}

/** The first of the choices is the default. */
export function readChoice<Choice extends string>(
  value: Choice | undefined,
  choices: readonly [Choice, ...Choice[]],
  at: string,
  name: string,
  faults: Faults,
): Choice {
  if (value === undefined) return choices[0];
  if (!choices.includes(value)) faults.add(`${at}.${name}`, `must be one of ${choices.join(", ")}`);
  return value;
}

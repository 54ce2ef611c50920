/** Every state, outcome and event type with its number, equal to the enums of the contracts (a test holds them together). */
export const RUN_STATES = {
  PENDING: 1,
  RUNNING: 2,
  PAUSED: 3,
  SUCCEEDED: 4,
  FAILED: 5,
  CANCELLED: 6,
  TIMED_OUT: 7,
} as const;

export const TASK_STATES = {
  BLOCKED: 1,
  READY: 2,
  LEASED: 3,
  SUCCEEDED: 4,
  RETRY_WAIT: 5,
  SUSPENDED: 6,
  DEAD: 7,
  CANCELLED: 8,
  SKIPPED: 9,
} as const;

export const ATTEMPT_OUTCOMES = {
  SUCCEEDED: 1,
  FAILED: 2,
  LOST: 3,
  CANCELLED: 4,
  TIMED_OUT: 5,
  RELEASED: 6,
  SUSPENDED: 7,
} as const;

export const EVENT_TYPES = {
  RUN_CREATED: 1,
  RUN_STARTED: 2,
  RUN_PAUSED: 3,
  RUN_RESUMED: 4,
  RUN_SUCCEEDED: 5,
  RUN_FAILED: 6,
  RUN_CANCELLED: 7,
  RUN_TIMED_OUT: 8,
  RUN_RETRIED: 9,
  TASK_SUCCEEDED: 20,
  TASK_RETRYING: 21,
  TASK_SUSPENDED: 22,
  TASK_DEAD: 23,
  TASK_SKIPPED: 24,
  TASK_REPLAYED: 25,
} as const;

export type RunState = keyof typeof RUN_STATES;
export type TaskState = keyof typeof TASK_STATES;
export type AttemptOutcome = keyof typeof ATTEMPT_OUTCOMES;

type Moves<State extends string> = Record<State, Partial<Record<string, State>>>;

/** Every legal move of a run. A move absent from this table cannot happen. */
export const RUN_MOVES = {
  PENDING: { started: "RUNNING", cancelled: "CANCELLED" },
  RUNNING: {
    paused: "PAUSED",
    succeeded: "SUCCEEDED",
    failed: "FAILED",
    cancelled: "CANCELLED",
    timedOut: "TIMED_OUT",
  },
  // Running handlers go on while paused, so the last outcome may arrive then.
  PAUSED: {
    resumed: "RUNNING",
    succeeded: "SUCCEEDED",
    failed: "FAILED",
    cancelled: "CANCELLED",
    timedOut: "TIMED_OUT",
  },
  SUCCEEDED: {},
  FAILED: { retried: "RUNNING" },
  CANCELLED: { retried: "RUNNING" },
  TIMED_OUT: { retried: "RUNNING" },
} as const satisfies Moves<RunState>;

/**
 * Every legal move of a task. A move absent from this table cannot happen. Only a retry or replay of the run reopens
 * an ended task: as READY, as BLOCKED where a dependency was reopened too, or as SKIPPED where one forbids it.
 */
export const TASK_MOVES = {
  BLOCKED: { unblocked: "READY", skipped: "SKIPPED", cancelled: "CANCELLED" },
  // Exhausted without a lease: schedule-to-start ran out, or a reference found nothing.
  READY: { claimed: "LEASED", exhausted: "DEAD", cancelled: "CANCELLED" },
  LEASED: {
    completed: "SUCCEEDED",
    retried: "RETRY_WAIT",
    suspended: "SUSPENDED",
    exhausted: "DEAD",
    released: "READY",
    cancelled: "CANCELLED",
  },
  SUCCEEDED: {},
  RETRY_WAIT: { due: "READY", cancelled: "CANCELLED" },
  SUSPENDED: { resumed: "READY", cancelled: "CANCELLED" },
  DEAD: { reopened: "READY", reblocked: "BLOCKED" },
  CANCELLED: { reopened: "READY", reblocked: "BLOCKED", skipped: "SKIPPED" },
  SKIPPED: { reopened: "READY", reblocked: "BLOCKED" },
} as const satisfies Moves<TaskState>;

export const canMoveRun = (from: RunState, to: RunState): boolean => leadsTo(RUN_MOVES[from], to);

export const canMoveTask = (from: TaskState, to: TaskState): boolean => leadsTo(TASK_MOVES[from], to);

export function isTerminalRun(state: RunState): boolean {
  return state === "SUCCEEDED" || state === "FAILED" || state === "CANCELLED" || state === "TIMED_OUT";
}

/** Outcomes are accepted only for an active run (G1). */
export function isActiveRun(state: RunState): boolean {
  return state === "RUNNING" || state === "PAUSED";
}

export function isTerminalTask(state: TaskState): boolean {
  return state === "SUCCEEDED" || state === "DEAD" || state === "CANCELLED" || state === "SKIPPED";
}

export const readRunState = reader("run state", RUN_STATES);
export const readTaskState = reader("task state", TASK_STATES);

function leadsTo(moves: Partial<Record<string, string>>, to: string): boolean {
  return Object.values(moves).includes(to);
}

/** Reads a stored number back to its name; another number is a bug, not a caller's fault. */
function reader<Name extends string>(what: string, codes: Readonly<Record<Name, number>>): (code: number) => Name {
  const names: (Name | undefined)[] = [];
  for (const name of Object.keys(codes) as Name[]) names[codes[name]] = name;
  return (code) => {
    const name = names[code];
    if (name === undefined) throw new Error(`no ${what} has the number ${code}`);
    return name;
  };
}

import { type Event, EventType } from "@runmesh/contracts/event/v1/event_pb";
import { type Run, Run_StateSchema, type TaskCounts } from "@runmesh/contracts/run/v1/run_pb";
import { enumName } from "./json-shape.ts";
import { formatBar } from "./progress.ts";
import { formatDuration } from "./times.ts";

/** What a watcher knows of a run: the last snapshot's counts, moved on by each event. */
export interface RunTally {
  total: number;
  succeeded: number;
  dead: number;
  skipped: number;
  cancelled: number;
  /** Attempts that another follows. */
  retried: number;
  state: string;
}

export function createTally(): RunTally {
  return { total: 0, succeeded: 0, dead: 0, skipped: 0, cancelled: 0, retried: 0, state: "PENDING" };
}

export function takeSnapshot(tally: RunTally, run: Run): void {
  const { total = 0, succeeded = 0, dead = 0, skipped = 0, cancelled = 0 }: Partial<TaskCounts> = run.tasks ?? {};
  Object.assign(tally, { total, succeeded, dead, skipped, cancelled, state: enumName(Run_StateSchema, run.state) });
}

/** The counts of tasks that a cancel or a replay moved come with the next snapshot: they have no events of their own. */
export function takeEvent(tally: RunTally, event: Event): void {
  const state = STATE_AFTER[event.type];
  if (state !== undefined) tally.state = state;
  if (event.type === EventType.TASK_SUCCEEDED) tally.succeeded++;
  else if (event.type === EventType.TASK_DEAD) tally.dead++;
  else if (event.type === EventType.TASK_SKIPPED) tally.skipped++;
  else if (event.type === EventType.TASK_RETRYING) tally.retried++;
}

/** "RUNNING  ████░░░░  34/58 tasks  2 dead  3.4 s". */
export function formatTally(tally: RunTally, elapsedMs: number): string {
  const { total, succeeded, dead, skipped, cancelled, retried, state } = tally;
  const ended = succeeded + dead + skipped + cancelled;
  const parts = [`${state}  ${formatBar(ended, total)}  ${ended}/${total} tasks`];
  for (const [count, word] of [
    [retried, "retried"],
    [dead, "dead"],
    [skipped, "skipped"],
    [cancelled, "cancelled"],
  ]) {
    if (count !== 0) parts.push(`${count} ${word}`);
  }
  return [...parts, formatDuration(elapsedMs)].join("  ");
}

const STATE_AFTER: { readonly [type in EventType]?: string } = {
  [EventType.RUN_STARTED]: "RUNNING",
  [EventType.RUN_PAUSED]: "PAUSED",
  [EventType.RUN_RESUMED]: "RUNNING",
  [EventType.RUN_RETRIED]: "RUNNING",
  [EventType.RUN_SUCCEEDED]: "SUCCEEDED",
  [EventType.RUN_FAILED]: "FAILED",
  [EventType.RUN_CANCELLED]: "CANCELLED",
  [EventType.RUN_TIMED_OUT]: "TIMED_OUT",
};

import { AttemptOutcomeSchema, type Event, EventTypeSchema } from "@runmesh/contracts/event/v1/event_pb";
import type { Attempt } from "@runmesh/contracts/task/v1/task_pb";
import type { TestMesh } from "@runmesh/testing/mesh";
import { expect } from "vitest";

type Clients = Pick<TestMesh, "runs" | "tasks">;

/** The whole history of a run; asserts that its sequence has no gap (G3). */
export async function listEvents({ runs }: Clients, runId: bigint): Promise<Event[]> {
  const events: Event[] = [];
  for (let hasMore = true; hasMore; ) {
    const page = await runs.listEvents({ runId, afterSequence: events.at(-1)?.sequence ?? 0n, pageSize: 1_000 });
    events.push(...page.events);
    hasMore = page.hasMore;
  }
  const { run } = await runs.getRun({ runId });
  expect(events.map((event) => event.sequence)).toEqual(events.map((_, i) => BigInt(i + 1)));
  expect(BigInt(events.length)).toBe(run!.sequence);
  return events;
}

/** The history in words: `RUN_CREATED`, `TASK_DEAD charge`. */
export async function tellEvents(clients: Clients, runId: bigint): Promise<string[]> {
  const events = await listEvents(clients, runId);
  return events.map(
    ({ type, taskKey }) => `${EventTypeSchema.value[type]!.localName}${taskKey === "" ? "" : ` ${taskKey}`}`,
  );
}

export async function listAttempts({ tasks }: Clients, runId: bigint): Promise<Attempt[]> {
  const attempts: Attempt[] = [];
  for (let pageToken = ""; ; ) {
    const page = await tasks.listAttempts({ runId, pageToken, pageSize: 1_000 });
    attempts.push(...page.attempts);
    pageToken = page.nextPageToken;
    if (pageToken === "") return attempts;
  }
}

/** The outcomes of a task's attempts, in the order of their fences. */
export async function tellAttempts({ tasks }: Clients, runId: bigint, key: string): Promise<string[]> {
  const { task } = await tasks.getTask({ runId, key });
  const { attempts } = await tasks.listAttempts({ taskId: task!.id, pageSize: 1_000 });
  return attempts.map(({ outcome }) => AttemptOutcomeSchema.value[outcome]!.localName);
}

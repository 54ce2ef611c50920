import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { AttemptOutcome, type Event, EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import type { Attempt } from "@runmesh/contracts/task/v1/task_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { handlersOf, toDefinition } from "../../sdk/cli/src/import-definition.ts";
import { startSimulation } from "../../sdk/cli/src/simulation.ts";
import { type ImportedWorkflow, readWfFormat } from "../../sdk/cli/src/wfformat.ts";

const GRAPHS = [
  { file: "helloworld-chain-5-chameleon.json", taskCount: 5 },
  { file: "helloworld-forkjoin-10-chameleon.json", taskCount: 10 },
  { file: "montage-chameleon-2mass-005d-001.json", taskCount: 58 },
  { file: "rnaseq-dirt02-001.json", taskCount: 197 },
  { file: "bwa-chameleon-large-001.json", taskCount: 1004 },
  { file: "montage-chameleon-dss-15d-001.json", taskCount: 2122 },
] as const;

/**
 * What the largest may take beside other suites. By itself it needs about one second on two cores, of the five that are
 * promised.
 */
const LARGEST_MS = 10_000;

test.each(GRAPHS)(
  "$file runs to SUCCEEDED, each of its $taskCount tasks once and after its parents",
  async ({ file, taskCount }) => {
    await using mesh = await startMesh();
    const imported = readGraph(file);
    await mesh.workflows.registerWorkflow({ definition: toDefinition(imported) });
    await using _worker = await startSimulation({
      url: mesh.url,
      handlers: handlersOf(imported),
      scale: 0,
      slots: 100,
    });

    const startedAt = performance.now();
    const { runId } = await mesh.runs.startRun({ workflow: imported.name });
    const run = await mesh.ended(runId);
    const tookMs = performance.now() - startedAt;

    expect(run).toMatchObject({
      state: Run_State.SUCCEEDED,
      tasks: { total: taskCount, succeeded: taskCount, open: 0 },
    });
    console.info(`${file}: ${taskCount} tasks in ${Math.round(tookMs)} ms`);
    expect(tookMs).toBeLessThan(LARGEST_MS);
    const attempts = await listAttempts(mesh, runId);
    const succeeded = attempts.filter((attempt) => attempt.outcome === AttemptOutcome.SUCCEEDED);
    expect(new Set(succeeded.map((attempt) => attempt.taskId)).size).toBe(taskCount);
    expect(succeeded).toHaveLength(taskCount);
    const events = await listEvents(mesh, runId);
    expect(events.map((event) => event.sequence)).toEqual(events.map((_, i) => BigInt(i + 1)));
    expect(BigInt(events.length)).toBe(run.sequence);
    expect(events.at(-1)!.type).toBe(EventType.RUN_SUCCEEDED);
    expect(findLeasedTooEarly(imported, succeeded, runId)).toEqual([]);
    expect(findToldTooEarly(imported, events)).toEqual([]);
  },
);

function readGraph(file: string): ImportedWorkflow {
  const path = fileURLToPath(new URL(`../../examples/wfinstances/${file}`, import.meta.url));
  return readWfFormat(JSON.parse(readFileSync(path, "utf8")));
}

/** Edges whose child was leased before its parent's accepted result was there, by the database's clock. */
function findLeasedTooEarly(imported: ImportedWorkflow, succeeded: readonly Attempt[], runId: bigint): string[] {
  const byId = new Map(succeeded.map((attempt) => [attempt.taskId, attempt]));
  const byKey = new Map(imported.tasks.map((task, ordinal) => [task.key, byId.get((runId << 20n) + BigInt(ordinal))!]));
  return findEdges(imported, (child, parent) => {
    return timestampMs(byKey.get(child)!.leaseTime!) >= timestampMs(byKey.get(parent)!.endTime!);
  });
}

/** Edges whose child's success was told before its parent's. */
function findToldTooEarly(imported: ImportedWorkflow, events: readonly Event[]): string[] {
  const toldAt = new Map(
    events.filter((event) => event.type === EventType.TASK_SUCCEEDED).map((event) => [event.taskKey, event.sequence]),
  );
  expect(toldAt.size).toBe(imported.tasks.length);
  return findEdges(imported, (child, parent) => toldAt.get(child)! > toldAt.get(parent)!);
}

function findEdges(imported: ImportedWorkflow, isRight: (child: string, parent: string) => boolean): string[] {
  return imported.tasks.flatMap((task) =>
    task.dependsOn.filter((parent) => !isRight(task.key, parent)).map((parent) => `${parent} -> ${task.key}`),
  );
}

async function listAttempts(mesh: TestMesh, runId: bigint): Promise<Attempt[]> {
  const all: Attempt[] = [];
  let pageToken = "";
  do {
    const page = await mesh.tasks.listAttempts({ runId, pageSize: 1_000, pageToken });
    all.push(...page.attempts);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return all;
}

async function listEvents(mesh: TestMesh, runId: bigint): Promise<Event[]> {
  const all: Event[] = [];
  for (let hasMore = true; hasMore; ) {
    const afterSequence = all.at(-1)?.sequence ?? 0n;
    const page = await mesh.runs.listEvents({ runId, pageSize: 1_000, afterSequence });
    all.push(...page.events);
    hasMore = page.hasMore;
  }
  return all;
}

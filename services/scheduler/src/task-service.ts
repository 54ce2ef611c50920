import type { ServiceImpl } from "@connectrpc/connect";
import type { Task } from "@runmesh/contracts/task/v1/task_pb";
import type { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { MAX_ORDINAL, runIdOf, taskId as toTaskId } from "@runmesh/domain/ids";
import { checkTexts } from "@runmesh/domain/names";
import { readPageToken, writePageToken } from "@runmesh/domain/page-token";
import { MAX_INT4 } from "@runmesh/platform/int4";
import { readPageSize } from "@runmesh/platform/page-size";
import { getPrincipal } from "@runmesh/platform/principal";
import { listLogs } from "@runmesh/store/attempt-logs";
import { findOutputs, listAttempts } from "@runmesh/store/attempts";
import type { Db } from "@runmesh/store/db";
import { listDeadLetterPage } from "@runmesh/store/dead-letters";
import type { DefinitionCache, LoadedDefinition } from "@runmesh/store/definition-cache";
import { findRun, findRunDefinitions } from "@runmesh/store/runs";
import { listTaskRows, type TaskRow } from "@runmesh/store/task-rows";
import { explainTasks } from "./not-running.ts";
import { writeNotRunning } from "./not-running-message.ts";
import { readRequestId } from "./request-id.ts";
import { resolveTaskParams } from "./resolved-params.ts";
import type { RunMoves } from "./run-moves.ts";
import { addPayloads, writeAttempt, writeLogLine, writeTask } from "./task-message.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly moves: RunMoves;
}

export function createTaskService({ db, definitions, moves }: Deps): ServiceImpl<typeof TaskService> {
  async function getLoaded(tenantId: number, runId: bigint, what = `run ${runId}`): Promise<LoadedDefinition> {
    const [found] = await findRunDefinitions(db, { tenantId, runIds: [runId] });
    if (found === undefined) throw new MeshError("NOT_FOUND", `no ${what}`);
    return definitions.get(tenantId, found.definition_id);
  }

  async function listPage(tenantId: number, request: DeadLetterQuery) {
    const limit = readPageSize(request.pageSize);
    const [before = "9223372036854775807"] = readPageToken(request.pageToken, "page_token", "id") ?? [];
    const { workflow, errorType } = request;
    checkTexts({ workflow, error_type: errorType });
    const asked = { tenantId, workflow, errorType, beforeId: BigInt(before), limit };
    const { rows, next } = await listDeadLetterPage(db, asked);
    return { page: rows, nextPageToken: next === undefined ? "" : writePageToken([String(next)]) };
  }

  async function getOne(tenantId: number, id: bigint): Promise<Task> {
    const loaded = await getLoaded(tenantId, runIdOf(id));
    const [row] = await listTaskRows(db, { tenantId, fromId: id, toId: id, states: [], limit: 1 });
    if (row === undefined) throw new MeshError("NOT_FOUND", `no task ${id}`);
    return writeTask(row, loaded);
  }

  /** Tasks of one run, each with why it does not run. */
  async function writeTasks(tenantId: number, loaded: LoadedDefinition, rows: readonly TaskRow[]): Promise<Task[]> {
    const run = rows.length === 0 ? undefined : await findRun(db, { tenantId, runId: runIdOf(rows[0]!.id) });
    const reasons = run && (await explainTasks(db, tenantId, run, loaded, rows));
    return rows.map((row) => {
      const task = writeTask(row, loaded);
      const why = reasons?.get(row.id);
      if (why !== undefined) task.notRunning = writeNotRunning(why);
      return task;
    });
  }

  return {
    async getTask(request, context) {
      const { tenantId } = getPrincipal(context);
      const runId = request.taskId === 0n ? request.runId : runIdOf(request.taskId);
      const loaded = await getLoaded(tenantId, runId, request.taskId === 0n ? undefined : `task ${request.taskId}`);
      const id = request.taskId === 0n ? findByKey(loaded, runId, request.key) : request.taskId;
      const [row] = await listTaskRows(db, { tenantId, fromId: id, toId: id, states: [], limit: 1 });
      if (row === undefined) throw new MeshError("NOT_FOUND", `no task ${id}`);
      const [output] = await findOutputs(db, { tenantId, taskIds: [id] });
      const text = output && (output.output?.toString("utf8") ?? "null");
      const [task] = await writeTasks(tenantId, loaded, [row]);
      const resolved = await resolveTaskParams(db, { tenantId, row, loaded });
      return { task: addPayloads(task!, loaded, text, resolved) };
    },

    async listTasks(request, context) {
      const { tenantId } = getPrincipal(context);
      const { runId, states } = request;
      const limit = readPageSize(request.pageSize);
      const [after] = readPageToken(request.pageToken, "page_token", "id") ?? [];
      const loaded = await getLoaded(tenantId, runId);
      if (after !== undefined && runIdOf(BigInt(after)) !== runId) {
        throw invalidField("page_token", "must be the token that the last page of the same run gave");
      }
      const fromId = after === undefined ? toTaskId(runId, 0) : BigInt(after) + 1n;
      const rows = await listTaskRows(db, {
        tenantId,
        fromId,
        toId: toTaskId(runId, MAX_ORDINAL),
        states,
        limit: limit + 1,
      });
      const page = rows.slice(0, limit);
      return {
        tasks: await writeTasks(tenantId, loaded, page),
        nextPageToken: rows.length > limit ? writePageToken([String(page.at(-1)!.id)]) : "",
      };
    },

    async listAttempts(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      if ((request.taskId === 0n) === (request.runId === 0n))
        throw invalidField("task_id", "or run_id, one of the two");
      const runId = request.taskId === 0n ? request.runId : runIdOf(request.taskId);
      await getLoaded(tenantId, runId);
      const [afterTask, afterFence] = readPageToken(request.pageToken, "page_token", "id", "id") ?? ["0", "0"];
      const rows = await listAttempts(db, {
        tenantId,
        fromTask: request.taskId === 0n ? toTaskId(runId, 0) : request.taskId,
        toTask: request.taskId === 0n ? toTaskId(runId, MAX_ORDINAL) : request.taskId,
        afterTask: BigInt(afterTask!),
        afterFence: BigInt(afterFence!),
        limit: limit + 1,
      });
      const page = rows.slice(0, limit);
      const last = page.at(-1);
      return {
        attempts: page.map(writeAttempt),
        nextPageToken: rows.length > limit ? writePageToken([String(last!.task_id), String(last!.fence)]) : "",
      };
    },

    async listLogs(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const { taskId, attempt: number } = request;
      await getLoaded(tenantId, runIdOf(taskId));
      const [afterFence, afterLine] = readPageToken(request.pageToken, "page_token", "id", "int") ?? ["0", "0"];
      const rows = await listLogs(db, {
        tenantId,
        taskId,
        number: Math.min(number, MAX_INT4),
        afterFence: BigInt(afterFence!),
        afterLine: Number(afterLine),
        limit: limit + 1,
      });
      const page = rows.slice(0, limit);
      const last = page.at(-1);
      return {
        lines: page.map(writeLogLine),
        nextPageToken: rows.length > limit ? writePageToken([String(last!.fence), String(last!.line)]) : "",
      };
    },

    async listDeadLetters(request, context) {
      const { tenantId } = getPrincipal(context);
      const { page, nextPageToken } = await listPage(tenantId, request);
      const tasks: Task[] = [];
      for (const row of page) tasks.push(await getOne(tenantId, row.id));
      return { tasks, nextPageToken };
    },

    async replayTask(request, context) {
      const principal = getPrincipal(context);
      await moves.replay(principal, request.taskId, request.requestId, request.fresh);
      return { task: await getOne(principal.tenantId, request.taskId) };
    },

    async replayDeadLetters(request, context) {
      const principal = getPrincipal(context);
      const requestId = readRequestId(request.requestId);
      const { page, nextPageToken } = await listPage(principal.tenantId, request);
      let replayedCount = 0;
      for (const { id } of page) {
        if (context.signal.aborted) throw new MeshError("CANCELLED", "the caller gave up: repeat from the same token");
        if (await moves.replayIfDead(principal, id, requestId, request.fresh)) replayedCount++;
      }
      return { replayedCount, passedOverCount: page.length - replayedCount, nextPageToken };
    },
  };
}

interface DeadLetterQuery {
  readonly workflow: string;
  readonly errorType: string;
  readonly pageSize: number;
  readonly pageToken: string;
}

function findByKey(loaded: LoadedDefinition, runId: bigint, key: string): bigint {
  const ordinal = loaded.plan.ordinalOf.get(key);
  if (ordinal === undefined) throw new MeshError("NOT_FOUND", `run ${runId} has no task ${key}`);
  return toTaskId(runId, ordinal);
}

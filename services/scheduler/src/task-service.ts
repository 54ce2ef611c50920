import type { ServiceImpl } from "@connectrpc/connect";
import type { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { MAX_ORDINAL, runIdOf, taskId as toTaskId } from "@runmesh/domain/ids";
import { readPageToken, writePageToken } from "@runmesh/domain/page-token";
import { readPageSize } from "@runmesh/platform/page-size";
import { getPrincipal } from "@runmesh/platform/principal";
import { listLogs } from "@runmesh/store/attempt-logs";
import { findOutputs, listAttempts } from "@runmesh/store/attempts";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache, LoadedDefinition } from "@runmesh/store/definition-cache";
import { findRunDefinitions } from "@runmesh/store/runs";
import { listTaskRows } from "@runmesh/store/task-rows";
import { addPayloads, writeAttempt, writeLogLine, writeTask } from "./task-message.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
}

/** Moves that a later version serves are left out: they answer NOT_SERVED. */
export function createTaskService({ db, definitions }: Deps): Partial<ServiceImpl<typeof TaskService>> {
  async function getLoaded(tenantId: number, runId: bigint): Promise<LoadedDefinition> {
    const [found] = await findRunDefinitions(db, { tenantId, runIds: [runId] });
    if (found === undefined) throw new MeshError("NOT_FOUND", `no run ${runId}`);
    return definitions.get(tenantId, found.definition_id);
  }

  return {
    async getTask(request, context) {
      const { tenantId } = getPrincipal(context);
      const runId = request.taskId === 0n ? request.runId : runIdOf(request.taskId);
      const loaded = await getLoaded(tenantId, runId);
      const id = request.taskId === 0n ? findByKey(loaded, runId, request.key) : request.taskId;
      const [row] = await listTaskRows(db, { tenantId, fromId: id, toId: id, states: [], limit: 1 });
      if (row === undefined) throw new MeshError("NOT_FOUND", `no task ${id}`);
      const [output] = await findOutputs(db, { tenantId, taskIds: [id] });
      const text = output && (output.output?.toString("utf8") ?? "null");
      return { task: addPayloads(writeTask(row, loaded), loaded, text) };
    },

    async listTasks(request, context) {
      const { tenantId } = getPrincipal(context);
      const { runId, states } = request;
      const limit = readPageSize(request.pageSize);
      const [after] = readPageToken(request.pageToken, "page_token", 1) ?? [];
      const loaded = await getLoaded(tenantId, runId);
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
        tasks: page.map((row) => writeTask(row, loaded)),
        nextPageToken: rows.length > limit ? writePageToken([String(page.at(-1)!.id)]) : "",
      };
    },

    async listAttempts(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      if ((request.taskId === 0n) === (request.runId === 0n)) throw invalidField("task_id", "or run_id, one of the two");
      const runId = request.taskId === 0n ? request.runId : runIdOf(request.taskId);
      await getLoaded(tenantId, runId);
      const [afterTask, afterFence] = readPageToken(request.pageToken, "page_token", 2) ?? ["0", "0"];
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
      const [afterFence, afterLine] = readPageToken(request.pageToken, "page_token", 2) ?? ["0", "0"];
      const rows = await listLogs(db, {
        tenantId,
        taskId,
        number,
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
  };
}

function findByKey(loaded: LoadedDefinition, runId: bigint, key: string): bigint {
  const ordinal = loaded.plan.ordinalOf.get(key);
  if (ordinal === undefined) throw new MeshError("NOT_FOUND", `run ${runId} has no task ${key}`);
  return toTaskId(runId, ordinal);
}

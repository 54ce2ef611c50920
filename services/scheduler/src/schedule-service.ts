import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import type { ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { invalidField } from "@runmesh/domain/errors";
import { checkTexts, readName } from "@runmesh/domain/names";
import { readPageToken, writePageToken } from "@runmesh/domain/page-token";
import { readPageSize } from "@runmesh/platform/page-size";
import { getPrincipal } from "@runmesh/platform/principal";
import { readTimestampMs } from "@runmesh/platform/timestamp";
import { findSchedule, listSchedules } from "@runmesh/store/schedules";
import { Registry } from "./registry.ts";
import { readRequestId } from "./request-id.ts";
import { backfillSchedule } from "./schedules/backfill-schedule.ts";
import type { ScheduleDeps } from "./schedules/schedule-deps.ts";
import { readSchedule, writeSchedule } from "./schedules/schedule-message.ts";
import {
  dropSchedule,
  missingSchedule,
  moveSchedule,
  putSchedule,
  triggerSchedule,
} from "./schedules/schedule-moves.ts";

export function createScheduleService(deps: ScheduleDeps): ServiceImpl<typeof ScheduleService> {
  const { db } = deps;
  const registry = new Registry(db);
  return {
    async putSchedule(request, context) {
      const principal = getPrincipal(context);
      const wanted = readSchedule(request.schedule);
      await registry.getVersion(principal.tenantId, wanted.workflow, wanted.version);
      const { row, created } = await putSchedule(db, principal, wanted);
      deps.wakeups.notify("schedules");
      return { schedule: writeSchedule(row, true), created };
    },

    async getSchedule(request, context) {
      const { tenantId } = getPrincipal(context);
      const name = readName(request.name, "name");
      const row = await findSchedule(db, { tenantId, name });
      if (row === undefined) throw missingSchedule(name);
      return { schedule: writeSchedule(row, true) };
    },

    async listSchedules(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const [afterName = ""] = readPageToken(request.pageToken, "page_token", "text") ?? [];
      checkTexts({ name_prefix: request.namePrefix });
      const rows = await listSchedules(db, { tenantId, prefix: request.namePrefix, afterName, limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        schedules: page.map((row) => writeSchedule(row, false)),
        nextPageToken: rows.length > limit ? writePageToken([page.at(-1)!.name]) : "",
      };
    },

    async deleteSchedule(request, context) {
      const requestId = readRequestId(request.requestId);
      await dropSchedule(db, getPrincipal(context), readName(request.name, "name"), requestId);
      return {};
    },

    async pauseSchedule(request, context) {
      const requestId = readRequestId(request.requestId);
      const row = await moveSchedule(db, getPrincipal(context), readName(request.name, "name"), true, requestId);
      return { schedule: writeSchedule(row, true) };
    },

    async resumeSchedule(request, context) {
      const requestId = readRequestId(request.requestId);
      const row = await moveSchedule(db, getPrincipal(context), readName(request.name, "name"), false, requestId);
      deps.wakeups.notify("schedules");
      return { schedule: writeSchedule(row, true) };
    },

    async triggerSchedule(request, context) {
      const requestId = readRequestId(request.requestId);
      const run = await triggerSchedule(deps, getPrincipal(context), readName(request.name, "name"), requestId);
      return { runId: run.runId, created: run.created };
    },

    async backfillSchedule(request, context) {
      return backfillSchedule(deps, getPrincipal(context), {
        name: readName(request.name, "name"),
        fromMs: readTime(request.from, "from"),
        toMs: readTime(request.to, "to"),
        mode: readMode(request.overlap),
      });
    },
  };
}

function readTime(time: Timestamp | undefined, field: string): number {
  if (time === undefined) throw invalidField(field, "must be given");
  return readTimestampMs(time, field);
}

function readMode(overlap: Schedule_Overlap): "all" | "queue" | undefined {
  if (overlap === Schedule_Overlap.UNSPECIFIED) return undefined;
  if (overlap === Schedule_Overlap.ALLOW) return "all";
  if (overlap === Schedule_Overlap.BUFFER_ALL) return "queue";
  throw invalidField("overlap", "a backfill has ALLOW or BUFFER_ALL");
}

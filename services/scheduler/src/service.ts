import type { ConnectRouter } from "@connectrpc/connect";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { ScheduleService } from "@runmesh/contracts/schedule/v1/schedule_service_pb";
import { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import type { Log } from "@runmesh/platform/log";
import { composeServices, type Service } from "@runmesh/platform/service";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { DefinitionCache } from "@runmesh/store/definition-cache";
import { RunIds } from "@runmesh/store/run-ids";
import { createAdmission } from "./admission.ts";
import { HistoryReader } from "./history-reader.ts";
import { OutboxGauge } from "./outbox-gauge.ts";
import { createOverdueStarts } from "./overdue-starts.ts";
import { createPromoter } from "./promoter.ts";
import { Registry } from "./registry.ts";
import { createRetention } from "./retention.ts";
import { RunMoves } from "./run-moves.ts";
import { createRunService } from "./run-service.ts";
import { createRunTimers } from "./run-timers.ts";
import { createScheduleService } from "./schedule-service.ts";
import { createSchedules } from "./schedules/loop.ts";
import { createTaskService } from "./task-service.ts";
import { createTidier } from "./tidier.ts";
import { createWaker } from "./waker.ts";
import { createWorkflowService } from "./workflow-service.ts";

export interface SchedulerOptions {
  /** For the statements of starts. */
  readonly hot: Db;
  readonly db: Db;
  /** For what is looked up within transactions on the others, on connections that no transaction holds. */
  readonly lookups: Db;
  readonly wakeups: Wakeups;
  readonly log: Log;
  /** Ended runs of tenants without a time of their own are kept so long. Default 30 days. */
  readonly keepMs?: number | undefined;
}

export interface Scheduler extends Service {
  routes(router: ConnectRouter): void;
}

/** Definitions, runs, the graph, timers and schedules. */
export function createScheduler({ hot, db, lookups, wakeups, log, keepMs }: SchedulerOptions): Scheduler {
  const definitions = new DefinitionCache(lookups, () => wakeups.notify("routes"));
  const registry = new Registry(db);
  const history = new HistoryReader(db);
  const moves = new RunMoves({ db, definitions, wakeups });
  const gauge = new OutboxGauge(db);
  // One for starts and ticks alike: with two, a run of today's tick could have a larger id than a run started after it.
  const runIds = new RunIds(lookups);
  const runs = createRunService({
    db,
    hot,
    definitions,
    registry,
    runIds,
    history,
    moves,
    gauge,
    wakeups,
  });
  const schedules = { db, definitions, runIds, moves, gauge, wakeups, log };
  const loops = composeServices("scheduler", [
    createPromoter({ db: hot, wakeups, log }),
    createRunTimers({ db, definitions, moves, wakeups, log }),
    createOverdueStarts({ db, definitions, wakeups, log }),
    createTidier({ db, definitions, wakeups, log }),
    createAdmission({ db, definitions, wakeups, log }),
    createRetention({ db, log, keepMs }),
    createWaker({ db, definitions, wakeups, log }),
    createSchedules(schedules),
  ]);
  return {
    ...loops,
    routes(router) {
      router.service(WorkflowService, createWorkflowService({ db, definitions, registry }));
      router.service(RunService, runs);
      router.service(ScheduleService, createScheduleService(schedules));
      router.service(TaskService, createTaskService({ db, definitions, moves }));
    },
  };
}

import { Command } from "commander";
import { addAuditList } from "./commands/audit-list.ts";
import { addCompletion } from "./commands/completion.ts";
import { addDeadLettersList, addDeadLettersReplay } from "./commands/dead-letters.ts";
import { addDev } from "./commands/dev.ts";
import { addDoctor } from "./commands/doctor.ts";
import { addImportWfFormat } from "./commands/import-wfformat.ts";
import { addKeyCreate } from "./commands/key-create.ts";
import { addKeyList } from "./commands/key-list.ts";
import { addKeyRevoke } from "./commands/key-revoke.ts";
import { addKeyRotate } from "./commands/key-rotate.ts";
import { addMigrate } from "./commands/migrate.ts";
import { addRunEvents } from "./commands/run-events.ts";
import { addRunList } from "./commands/run-list.ts";
import { addRunMoves } from "./commands/run-move.ts";
import { addRunRerun } from "./commands/run-rerun.ts";
import { addRunShow } from "./commands/run-show.ts";
import { addRunSignal } from "./commands/run-signal.ts";
import { addRunStart } from "./commands/run-start.ts";
import { addRunWatch } from "./commands/run-watch.ts";
import { addScheduleBackfill } from "./commands/schedule-backfill.ts";
import { addScheduleDelete } from "./commands/schedule-delete.ts";
import { addScheduleList } from "./commands/schedule-list.ts";
import { addSchedulePause } from "./commands/schedule-pause.ts";
import { addSchedulePut } from "./commands/schedule-put.ts";
import { addScheduleResume } from "./commands/schedule-resume.ts";
import { addScheduleShow } from "./commands/schedule-show.ts";
import { addScheduleTrigger } from "./commands/schedule-trigger.ts";
import { addStart } from "./commands/start.ts";
import { addTaskList } from "./commands/task-list.ts";
import { addTaskLogs } from "./commands/task-logs.ts";
import { addTaskReplay } from "./commands/task-replay.ts";
import { addTaskShow } from "./commands/task-show.ts";
import { addTenantCreate } from "./commands/tenant-create.ts";
import { addTenantList } from "./commands/tenant-list.ts";
import { addTenantQuota } from "./commands/tenant-quota.ts";
import { addWorkerList } from "./commands/worker-list.ts";
import { addWorkflowList } from "./commands/workflow-list.ts";
import { addWorkflowRegister } from "./commands/workflow-register.ts";
import { addWorkflowShow } from "./commands/workflow-show.ts";
import { EXIT_HELP } from "./exit-codes.ts";
import type { Host } from "./host.ts";
import { DEFAULT_URL } from "./session.ts";

type AddCommand = (parent: Command, host: Host) => void;

const GROUPS: readonly (readonly [string, string, readonly AddCommand[]])[] = [
  ["workflow", "register and show workflows", [addWorkflowRegister, addWorkflowList, addWorkflowShow]],
  [
    "run",
    "start, show and move runs",
    [addRunStart, addRunList, addRunShow, addRunWatch, addRunEvents, addRunMoves, addRunRerun, addRunSignal],
  ],
  ["task", "look into the tasks of a run, and replay them", [addTaskList, addTaskShow, addTaskLogs, addTaskReplay]],
  ["dead-letters", "list and replay dead tasks of failed runs", [addDeadLettersList, addDeadLettersReplay]],
  [
    "schedule",
    "start runs by the clock",
    [
      addSchedulePut,
      addScheduleList,
      addScheduleShow,
      addScheduleDelete,
      addSchedulePause,
      addScheduleResume,
      addScheduleTrigger,
      addScheduleBackfill,
    ],
  ],
  ["worker", "see who works", [addWorkerList]],
  ["key", "make and end the credentials of machines", [addKeyCreate, addKeyList, addKeyRotate, addKeyRevoke]],
  ["audit", "see who did what", [addAuditList]],
  [
    "tenant",
    "make tenants and set their quotas, as an admin of the system",
    [addTenantCreate, addTenantList, addTenantQuota],
  ],
  ["import", "make workflows of other systems' files", [addImportWfFormat]],
];

/**
 * Every command, on one host. Throws CommanderError where commander would end the process, with its message written
 * already unless the caller will print it as JSON.
 */
export function createProgram(host: Host, version: string, json: boolean): Command {
  const program = new Command("runmesh")
    .exitOverride()
    .description("RunMesh: durable workflows over PostgreSQL")
    .version(version)
    .option("--json", "print JSON: one object, or one object a line for lists and streams")
    .option("--url <url>", `where the mesh is (RUNMESH_URL, default ${DEFAULT_URL})`)
    .option("--api-key <key>", "sent as a bearer token (RUNMESH_API_KEY)")
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({
      writeOut: (text) => host.terminal.out(text.trimEnd()),
      writeErr(text) {
        if (!json) host.terminal.note(inPlainWords(text.trimEnd()));
      },
    })
    .showHelpAfterError("(--help says more)")
    .addHelpText("after", EXIT_HELP);

  addDev(program, host);
  addStart(program, host);
  for (const [name, description, commands] of GROUPS) {
    const group = program.command(name).description(description);
    for (const add of commands) add(group, host);
  }
  addMigrate(program, host);
  addDoctor(program, host);
  addCompletion(program, host);
  return program;
}

/** Commander calls what stands in an argument's place a "command-argument value". */
export function inPlainWords(usage: string): string {
  return usage.replace("command-argument value '", "'");
}

import { randomUUID } from "node:crypto";
import type { Mesh } from "@runmesh/client";
import type { Run } from "@runmesh/contracts/run/v1/run_pb";
import { type Task, TaskSchema } from "@runmesh/contracts/task/v1/task_pb";
import type { Command } from "commander";
import { deadLetterColumns } from "../dead-letter-view.ts";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { openSession, type Session } from "../session.ts";
import { UsageError } from "../usage-error.ts";
import { formatMoved, walkPages } from "../walk-pages.ts";

interface DeadOptions {
  readonly workflow: string;
  readonly errorType: string;
}

/** As many as one call answers; a table of more has its first ones told. */
const MAX_RUNS = 1_000;

const addOptions = (command: Command): Command =>
  command
    .option("--workflow <name>", "only of this workflow", "")
    .option("--error-type <type>", "only those whose last error is of this type", "");

export function addDeadLettersList(group: Command, host: Host): void {
  addPageOptions(
    addOptions(group.command("list").description("list dead tasks of failed runs, newest run first")),
    20,
  ).action(async ({ workflow, errorType, limit, pageToken }: DeadOptions & PageOptions, command: Command) => {
    const { printer, call, mesh } = openSession(command, host);
    const { tasks, runs } = await mesh();

    const page = await readPages(limit, pageToken, async (size, token) => {
      const answer = await tasks.listDeadLetters({ workflow, errorType, pageSize: size, pageToken: token }, call);
      return { items: answer.tasks, nextPageToken: answer.nextPageToken };
    });

    const ended = printer.json ? [] : await endedRuns(runs, page.items, call);
    printer.list(page.items, (task) => toShape(TaskSchema, task), deadLetterColumns(ended));
    printer.nextPage(page.nextPageToken);
  });
}

/** The runs of dead letters have ended, so this waits for nothing. A key that may not read runs sees none. */
async function endedRuns(runs: Mesh["runs"], letters: readonly Task[], call: Session["call"]): Promise<Run[]> {
  const runIds = [...new Set(letters.map((task) => task.runId))].slice(0, MAX_RUNS);
  if (runIds.length === 0) return [];
  try {
    return (await runs.awaitRuns({ runIds }, call)).runs;
  } catch (error) {
    if ((error as { reason?: unknown }).reason === "FORBIDDEN") return [];
    throw error;
  }
}

export function addDeadLettersReplay(group: Command, host: Host): void {
  addOptions(group.command("replay").description("open dead tasks again, and what is downstream of each"))
    .option("--fresh", "forget recorded steps")
    .option("--yes", "do it; without a filter every dead letter is meant")
    .action(async (options: DeadOptions & { fresh?: boolean; yes?: boolean }, command: Command) => {
      const { printer, progress, call, mesh } = openSession(command, host);
      const { workflow, errorType, fresh = false } = options;
      if (options.yes !== true) {
        throw new UsageError("every dead letter that `dead-letters list` shows would be replayed", {
          advice: "Add --yes to do it.",
        });
      }
      const { tasks } = await mesh();

      // One id for the walk: a page whose answer was lost is asked for again, and replays nothing twice.
      const requestId = randomUUID();
      const moved = await walkPages(progress, "replayed", async (pageSize, pageToken) => {
        const asked = { workflow, errorType, fresh, pageSize, pageToken, requestId };
        const page = await tasks.replayDeadLetters(asked, call);
        return { ...page, movedCount: page.replayedCount };
      });

      const { movedCount: replayedCount, passedOverCount } = moved;
      printer.one({ replayedCount, passedOverCount }, () => [formatMoved(moved, "dead letter", "replayed")]);
    });
}

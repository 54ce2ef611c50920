import { randomUUID } from "node:crypto";
import type { Mesh } from "@runmesh/client";
import { type Run, Run_State } from "@runmesh/contracts/run/v1/run_pb";
import type { Command } from "commander";
import { readId } from "../arguments.ts";
import { addFilterOptions, type FilterOptions, hasFilter, readFilter } from "../filter-options.ts";
import type { Host } from "../host.ts";
import { readPages } from "../read-pages.ts";
import { runShape, stateOf } from "../run-view.ts";
import { openSession, type Session } from "../session.ts";
import { UsageError } from "../usage-error.ts";
import { formatMoved, type Moved, walkPages } from "../walk-pages.ts";

interface MoveOptions extends FilterOptions {
  readonly yes?: boolean;
  readonly comment?: string;
  readonly fresh?: boolean;
}

type Runs = Mesh["runs"];
type Call = Session["call"];
type Page = {
  readonly filter: ReturnType<typeof readFilter>;
  readonly pageSize: number;
  readonly pageToken: string;
  readonly requestId: string;
};

/** A move of one run by its id, or of many by a filter. */
interface Move {
  readonly name: string;
  readonly description: string;
  readonly done: string;
  /** States that it moves a run from. */
  readonly from: readonly Run_State[];
  addOptions?(command: Command): void;
  one(runs: Runs, runId: bigint, options: MoveOptions, call: Call): Promise<{ run?: Run | undefined }>;
  many(runs: Runs, page: Page, options: MoveOptions, call: Call): Promise<Moved & { readonly nextPageToken: string }>;
}

const MOVES: readonly Move[] = [
  {
    name: "cancel",
    description: "cancel runs: when this returns, nothing of them starts and no result is accepted",
    done: "cancelled",
    from: [Run_State.PENDING, Run_State.RUNNING, Run_State.PAUSED],
    addOptions: (command) => command.option("--comment <text>", "why, for people", ""),
    one: (runs, runId, { comment = "" }, call) => runs.cancelRun({ runId, comment }, call),
    many: (runs, page, { comment = "" }, call) => runs.cancelRuns({ ...page, comment }, call),
  },
  {
    name: "pause",
    description: "pause runs: nothing new of them starts, running handlers go on",
    done: "paused",
    from: [Run_State.RUNNING],
    one: (runs, runId, _options, call) => runs.pauseRun({ runId }, call),
    many: (runs, page, _options, call) => runs.pauseRuns(page, call),
  },
  {
    name: "resume",
    description: "let paused runs go on",
    done: "resumed",
    from: [Run_State.PAUSED],
    one: (runs, runId, _options, call) => runs.resumeRun({ runId }, call),
    many: (runs, page, _options, call) => runs.resumeRuns(page, call),
  },
  {
    name: "retry",
    description: "open failed, cancelled or timed-out runs again; results are kept",
    done: "retried",
    from: [Run_State.FAILED, Run_State.CANCELLED, Run_State.TIMED_OUT],
    addOptions: (command) => command.option("--fresh", "forget recorded steps"),
    one: (runs, runId, { fresh = false }, call) => runs.retryRun({ runId, fresh, requestId: randomUUID() }, call),
    many: (runs, page, { fresh = false }, call) => runs.retryRuns({ ...page, fresh }, call),
  },
];

/** `run cancel`, `run pause`, `run resume` and `run retry`. */
export function addRunMoves(group: Command, host: Host): void {
  for (const move of MOVES) addMove(group, host, move);
}

function addMove(group: Command, host: Host, move: Move): void {
  const command = addFilterOptions(
    group
      .command(move.name)
      .argument("[run]", "the run's id; left out, those of the filter", readId)
      .description(move.description),
  ).option("--yes", "with a filter: do it, and do not only say how many it would be");
  move.addOptions?.(command);
  command.action(async (runId: bigint | undefined, options: MoveOptions) => {
    const byFilter = hasFilter(options);
    if ((runId !== undefined) === byFilter) {
      throw new UsageError("give a run, or a filter", { advice: "As in --workflow order --state failed." });
    }
    const session = openSession(command, host);
    const { runs } = await session.mesh();
    if (runId === undefined) return moveMany(session, runs, move, options);
    const { run } = await move.one(runs, runId, options, session.call);
    if (run === undefined) throw new Error(`${move.name} answered no run`);
    session.printer.one(runShape(run), () => [`Run ${runId} is ${stateOf(run)}`]);
  });
}

async function moveMany({ printer, progress, call }: Session, runs: Runs, move: Move, options: MoveOptions) {
  const filter = readFilter(options);
  if (options.yes !== true) {
    const states = filter.states.length === 0 ? [...move.from] : filter.states.filter((s) => move.from.includes(s));
    const found =
      states.length === 0
        ? []
        : (
            await readPages(MAX_SHOWN, "", async (pageSize, pageToken) => {
              const answer = await runs.listRuns({ filter: { ...filter, states }, pageSize, pageToken }, call);
              return { items: answer.runs, nextPageToken: answer.nextPageToken };
            })
          ).items;
    const count = found.length === MAX_SHOWN ? `${MAX_SHOWN} or more` : String(found.length);
    throw new UsageError(`${count} run${found.length === 1 ? "" : "s"} would be ${move.done}`, {
      advice: "Add --yes to do it.",
    });
  }
  // One id for the walk: a page whose answer was lost is asked for again, and moves nothing twice.
  const requestId = randomUUID();
  const moved = await walkPages(progress, move.done, (pageSize, pageToken) =>
    move.many(runs, { filter, pageSize, pageToken, requestId }, options, call),
  );
  printer.one(moved, () => [formatMoved(moved, "run", move.done)]);
}

const MAX_SHOWN = 1_000;

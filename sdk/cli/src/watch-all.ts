import { type Run, type RunLeft, RunLeft_Cause, RunLeft_CauseSchema } from "@runmesh/contracts/run/v1/run_pb";
import { type FilterOptions, readFilter } from "./filter-options.ts";
import { followRuns } from "./follow-runs.ts";
import { enumName } from "./json-shape.ts";
import { runShape, stateOf } from "./run-view.ts";
import type { Session } from "./session.ts";

/** Prints the runs of a filter as they stand, then each that moves, until Ctrl-C. */
export async function watchAll(session: Session, options: FilterOptions & { readonly limit: number }): Promise<never> {
  const { printer, signal } = session;
  return followRuns(await session.mesh(), {
    filter: readFilter(options),
    limit: options.limit,
    signal,
    onRun: (run) => printer.entry({ run: runShape(run) }, () => formatLine(run)),
    onLeft: (left) => printer.entry({ left: leftShape(left) }, () => formatLeft(left)),
  });
}

function formatLine(run: Run): string {
  const { total = 0, open = 0, dead = 0 } = run.tasks ?? {};
  const died = dead === 0 ? "" : `, ${dead} dead`;
  return `${run.id}  ${stateOf(run).padEnd(9)}  ${total - open}/${total}${died}  ${run.workflow}`;
}

function formatLeft({ runId, cause, run }: RunLeft): string {
  if (cause === RunLeft_Cause.REMOVED) return `${runId}  is gone`;
  if (cause === RunLeft_Cause.NEWER) return `${runId}  gives its place to a newer one`;
  return run === undefined ? `${runId}  left` : formatLine(run);
}

const leftShape = ({ runId, cause, run }: RunLeft) => ({
  runId: String(runId),
  cause: enumName(RunLeft_CauseSchema, cause),
  ...(run !== undefined && { run: runShape(run) }),
});

import type { RunFilter as FilterMessage } from "@runmesh/contracts/run/v1/run_pb";
import { invalidField } from "@runmesh/domain/errors";
import { checkTexts } from "@runmesh/domain/names";
import { RUN_STATES } from "@runmesh/domain/states";
import { readTimestamp } from "@runmesh/platform/timestamp";
import type { RunFilter } from "@runmesh/store/list-runs";
import { readLabels } from "./labels.ts";

const STATES: ReadonlySet<number> = new Set(Object.values(RUN_STATES));

export function readFilter(filter: FilterMessage | undefined): RunFilter {
  const { workflow = "", idempotencyKey = "", labels = {} } = filter ?? {};
  checkTexts({ "filter.workflow": workflow, "filter.idempotency_key": idempotencyKey });
  readLabels(labels, "filter.labels");
  return {
    states: readStates(filter?.states ?? []),
    workflow,
    version: filter?.workflowVersion ?? 0,
    createdAfter: readTimestamp(filter?.createdAfter, "filter.created_after"),
    createdBefore: readTimestamp(filter?.createdBefore, "filter.created_before"),
    labels,
    parentRunId: filter?.parentRunId ?? 0n,
    idempotencyKey,
  };
}

/** Each once. A state that is not known is refused: left out, the filter would hold for more than was meant. */
function readStates(states: readonly number[]): number[] {
  for (const [i, state] of states.entries()) {
    if (!STATES.has(state)) throw invalidField(`filter.states[${i}]`, "is no state of a run");
  }
  return [...new Set(states)];
}

/** A filter that says something: what moves many runs must not do so for want of a filter. Throws INVALID_FIELD. */
export function readSomeFilter(message: FilterMessage | undefined): RunFilter {
  const filter = readFilter(message);
  const says =
    filter.states.length > 0 ||
    filter.workflow !== "" ||
    filter.version > 0 ||
    filter.createdAfter !== undefined ||
    filter.createdBefore !== undefined ||
    Object.keys(filter.labels).length > 0 ||
    filter.parentRunId > 0n ||
    filter.idempotencyKey !== "";
  if (!says) throw invalidField("filter", "must say which runs are meant; states, where all are");
  return filter;
}

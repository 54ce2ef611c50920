import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { RunFilter as FilterMessage } from "@runmesh/contracts/run/v1/run_pb";
import { invalidField } from "@runmesh/domain/errors";
import { findTextFault } from "@runmesh/domain/names";
import type { RunFilter } from "@runmesh/store/runs";

export function readFilter(filter: FilterMessage | undefined): RunFilter {
  const texts = { workflow: filter?.workflow ?? "", idempotency_key: filter?.idempotencyKey ?? "" };
  for (const [field, text] of Object.entries(texts)) {
    const fault = findTextFault(text);
    if (fault !== undefined) throw invalidField(`filter.${field}`, fault);
  }
  return {
    states: filter?.states ?? [],
    workflow: texts.workflow,
    version: filter?.workflowVersion ?? 0,
    createdAfter: filter?.createdAfter && timestampDate(filter.createdAfter),
    createdBefore: filter?.createdBefore && timestampDate(filter.createdBefore),
    labels: filter?.labels ?? {},
    parentRunId: filter?.parentRunId ?? 0n,
    idempotencyKey: texts.idempotency_key,
  };
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

import { int2Array, int4Array, int8Array } from "./binary-parameters.ts";
import type { Completion, Dependent } from "./complete-leases.ts";
import { packEvents } from "./outbox-packs.ts";

/**
 * The statement's parameters, $1 to $11 and, where there are dependents, to $17; these, distinct and in ascending order;
 * whether every item is of another run.
 */
export function packCompletions(
  tenantId: number,
  completions: readonly Completion[],
): { params: unknown[]; dependents: readonly Dependent[]; oneEach: boolean } {
  const runIdOfEach = completions.map(({ taskId }) => taskId >> 20n);
  const runIds = runIdOfEach.filter((runId, i) => runId !== runIdOfEach[i - 1]);
  const oneEach = runIds.length === completions.length;
  const outputs = packOutputs(completions);
  const params: unknown[] = [
    tenantId,
    int8Array(completions.map((completion) => completion.taskId)),
    int8Array(completions.map((completion) => completion.fence)),
    int8Array(completions.map((completion) => completion.sessionId)),
    int8Array(runIds),
    int4Array(packEvents(runIdOfEach)),
    outputs.bytes,
    int4Array(outputs.offsets),
    int4Array(outputs.sizes),
    runIds[0],
    runIds.at(-1),
  ];
  if (!completions.some((completion) => completion.dependents.length > 0)) return { params, dependents: [], oneEach };
  const { arrays, dependents } = packDependents(completions);
  params.push(...arrays);
  return { params, dependents, oneEach };
}

function packOutputs(completions: readonly Completion[]) {
  const offsets: number[] = [];
  const sizes: number[] = [];
  const parts: Buffer[] = [];
  let at = 1;
  for (const { output } of completions) {
    offsets.push(at);
    sizes.push(output?.length ?? -1);
    if (output === undefined) continue;
    parts.push(output);
    at += output.length;
  }
  return { bytes: Buffer.concat(parts), offsets, sizes };
}

function packDependents(completions: readonly Completion[]) {
  const starts: number[] = [];
  const ends: number[] = [];
  const flat: bigint[] = [];
  const distinct = new Map<bigint, Dependent>();
  for (const { dependents } of completions) {
    starts.push(flat.length + 1);
    for (const dependent of dependents) {
      flat.push(dependent.taskId);
      distinct.set(dependent.taskId, dependent);
    }
    ends.push(flat.length);
  }
  const dependents = [...distinct.values()].sort((a, b) => (a.taskId < b.taskId ? -1 : 1));
  const arrays = [
    int4Array(starts),
    int4Array(ends),
    int8Array(flat),
    int8Array(dependents.map((dependent) => dependent.taskId)),
    int4Array(dependents.map((dependent) => dependent.routeId)),
    int2Array(dependents.map((dependent) => dependent.rank)),
  ];
  return { arrays, dependents };
}

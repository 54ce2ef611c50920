import type { Resolution } from "@runmesh/domain/references";
import type { Db } from "./db.ts";
import type { LoadedDefinition } from "./definition-cache.ts";
import { resolveTemplates } from "./resolve-templates.ts";

/** A run that SUCCEEDED, with its definition. */
export interface SucceededRun {
  readonly runId: bigint;
  readonly loaded: LoadedDefinition;
}

/**
 * What runs that SUCCEEDED answer, in order. It is derived from the results that it refers to, so ending a run writes
 * none.
 */
export const readRunOutputs = (
  db: Db,
  { tenantId, runs }: { tenantId: number; runs: readonly SucceededRun[] },
): Promise<Resolution[]> =>
  resolveTemplates(db, { tenantId, items: runs.map((run) => ({ ...run, template: run.loaded.output })) });

export async function readRunOutput(
  db: Db,
  { tenantId, ...run }: SucceededRun & { tenantId: number },
): Promise<Resolution> {
  return (await readRunOutputs(db, { tenantId, runs: [run] }))[0]!;
}

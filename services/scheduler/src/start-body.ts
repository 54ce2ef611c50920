import { canonicalJson } from "@runmesh/domain/json-text";
import { digestOf } from "@runmesh/platform/digest";
import type { Db } from "@runmesh/store/db";
import type { StartKeyRow } from "@runmesh/store/start-keys";
import { findStartBody } from "@runmesh/store/start-keys";
import type { NewRun } from "@runmesh/store/start-runs";

type Body = Pick<NewRun, "labels" | "dueAtMs"> & { readonly input: string | undefined };

/** Digest of a start's body as it was typed: equal for the same bytes, which is what a repeated call sends. */
export const digestBody = ({ input, labels, dueAtMs }: Body): string =>
  digestOf(`${input ?? "null"}\n${labels}\n${dueAtMs}`);

/**
 * Whether the holder of a key was started with this body: the same input by what it means, labels and due time. Only
 * where the bytes differ is the holder's row read; where retention has removed it, the bytes decide.
 */
export async function isSameBody(db: Db, tenantId: number, run: NewRun, holder: StartKeyRow): Promise<boolean> {
  if (holder.body_hash === run.bodyHash) return true;
  const found = await findStartBody(db, { tenantId, runId: holder.run_id });
  if (found === undefined) return false;
  const input = (bytes: Buffer | null | undefined) => canonicalJson(bytes?.toString("utf8") ?? "null");
  return (
    input(found.input) === input(run.input) &&
    canonicalJson(JSON.stringify(found.labels)) === canonicalJson(run.labels) &&
    (found.due_at?.getTime() ?? 0) === run.dueAtMs
  );
}

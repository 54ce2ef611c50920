import type { Db } from "@runmesh/store/db";
import type { Finding } from "@runmesh/store/invariant";
import { CHECKS } from "@runmesh/store/invariants";

export type { Finding } from "@runmesh/store/invariant";

/** Runs every check of the state's invariants; none found is a clean bill. */
export async function inspect(db: Db): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const check of CHECKS) {
    const finding = await check(db);
    if (finding !== undefined) findings.push(finding);
  }
  return findings;
}

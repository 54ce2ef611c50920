import { type Reason, ReasonSchema } from "@runmesh/contracts/error/v1/error_pb";

/** As in "FENCE_STALE". */
export function reasonName(reason: Reason): string {
  const value = ReasonSchema.value[reason];
  if (value === undefined) throw new Error(`${reason} is no reason`);
  return value.name.replace("REASON_", "");
}

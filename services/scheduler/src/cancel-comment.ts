import { invalidField } from "@runmesh/domain/errors";
import { exceedsUtf8, findTextFault } from "@runmesh/domain/names";

const MAX_BYTES = 1_024;

/** Why someone cancels, in words of theirs. Throws INVALID_FIELD. */
export function readComment(comment: string): string {
  const fault = findTextFault(comment) ?? (exceedsUtf8(comment, MAX_BYTES) ? "must be at most 1024 bytes" : undefined);
  if (fault !== undefined) throw invalidField("comment", fault);
  return comment;
}

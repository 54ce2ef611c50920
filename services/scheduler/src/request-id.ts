import { invalidField } from "@runmesh/domain/errors";
import { exceedsUtf8, findTextFault } from "@runmesh/domain/names";

const MAX_BYTES = 128;

/** The id by which a repeated move is told; empty where none is given. Throws INVALID_FIELD. */
export function readRequestId(id: string): string {
  const fault = findTextFault(id) ?? (exceedsUtf8(id, MAX_BYTES) ? `must be at most ${MAX_BYTES} bytes` : undefined);
  if (fault !== undefined) throw invalidField("request_id", fault);
  return id;
}

import { invalidField } from "@runmesh/domain/errors";
import { exceedsUtf8, findNameFault, findTextFault } from "@runmesh/domain/names";

/** Labels of a run. */
export const MAX_LABELS = 16;
const MAX_LABEL_BYTES = 1024;

/** Labels as a JSON object, keys in order. Throws INVALID_FIELD naming the label. */
export function readLabels(labels: Readonly<Record<string, string>>, field = "labels", most = MAX_LABELS): string {
  const entries = Object.entries(labels);
  if (entries.length === 0) return "{}";
  if (entries.length > most) throw invalidField(field, `there may be at most ${most}`);
  for (const [key, value] of entries) {
    const fault =
      findNameFault(key) ??
      findTextFault(value) ??
      (exceedsUtf8(value, MAX_LABEL_BYTES) ? `a value has at most ${MAX_LABEL_BYTES} bytes` : undefined);
    if (fault !== undefined) throw invalidField(`${field}[${JSON.stringify(key)}]`, fault);
  }
  return JSON.stringify(Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1))));
}

import { MeshError } from "./errors.ts";
import { type Reference, readReference } from "./reference.ts";

/** Nested deeper, the server refuses it. */
const MAX_DEPTH = 100;

/**
 * Writes params, or a run's output, as JSON text: references as `{"$ref": …}`, and data that looks like one inside
 * `{"$literal": …}`. Keys keep the author's order, so the same definition has the same bytes.
 */
export function writeParams(value: unknown, owner: object, path: string): string {
  return write(value, { owner, literal: false }, path, 0) ?? "null";
}

interface Place {
  readonly owner: object;
  /** Inside `$literal` or a default, where a reference would be taken for data. */
  readonly literal: boolean;
}

/** Undefined for what JSON leaves out. */
function write(value: unknown, place: Place, path: string, depth: number): string | undefined {
  if (depth > MAX_DEPTH) throw refused(path, `is nested deeper than ${MAX_DEPTH}, or in a circle`);
  const reference = readReference(value);
  if (reference !== undefined) return writeReference(reference, place, path, depth);
  switch (typeof value) {
    case "undefined":
      return undefined;
    case "string":
    case "boolean":
      return JSON.stringify(value);
    case "number":
      if (!Number.isFinite(value)) throw refused(path, `${value} is not JSON`);
      return JSON.stringify(value);
    case "object":
      return value === null ? "null" : writeObject(value, place, path, depth);
    default:
      throw refused(path, `a ${typeof value} is not JSON`);
  }
}

function writeObject(value: object, place: Place, path: string, depth: number): string | undefined {
  if (Array.isArray(value)) {
    const items = value.map((item, i) => write(item, place, `${path}[${i}]`, depth + 1) ?? "null");
    return `[${items.join(",")}]`;
  }
  if ("toJSON" in value && typeof value.toJSON === "function") return write(value.toJSON(), place, path, depth + 1);
  const looksLikeReference = !place.literal && (Object.hasOwn(value, "$ref") || Object.hasOwn(value, "$literal"));
  const inner = looksLikeReference ? { ...place, literal: true } : place;
  const fields: string[] = [];
  for (const [name, item] of Object.entries(value)) {
    const text = write(item, inner, `${path}.${name}`, depth + 1);
    if (text !== undefined) fields.push(`${JSON.stringify(name)}:${text}`);
  }
  const text = `{${fields.join(",")}}`;
  return looksLikeReference ? `{"$literal":${text}}` : text;
}

function writeReference(reference: Reference, place: Place, path: string, depth: number): string {
  if (place.literal) throw refused(path, "a reference cannot stand inside a default or data that looks like one");
  if (reference.owner !== place.owner) {
    throw refused(path, `the reference ${reference.pointer} belongs to another workflow`);
  }
  const pointer = JSON.stringify(reference.pointer);
  if (reference.fallback === undefined) return `{"$ref":${pointer}}`;
  const fallback = write(reference.fallback.value, { ...place, literal: true }, `${path}.default`, depth + 1);
  return `{"$ref":${pointer},"default":${fallback ?? "null"}}`;
}

function refused(path: string, description: string): MeshError {
  return new MeshError("INVALID_REFERENCE", `${path}: ${description}`, {
    advice: "Pass JSON, references made by this workflow, or both mixed.",
    violations: [{ field: path, reason: "INVALID_REFERENCE", description }],
  });
}

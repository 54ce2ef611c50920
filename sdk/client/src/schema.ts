import type { StandardSchemaV1 } from "@standard-schema/spec";
import { MeshError, type Violation } from "./errors.ts";

/** At most as many as the server would name. */
const MAX_VIOLATIONS = 20;

/**
 * Checks a value and returns what the schema makes of it. Fails with INVALID_FIELD, each violation named by its path
 * under `root`, as in `input.lines[2].sku`.
 */
export function validate(schema: StandardSchemaV1, value: unknown, root: string): unknown | Promise<unknown> {
  const result = schema["~standard"].validate(value);
  return result instanceof Promise ? result.then((r) => settle(r, root)) : settle(result, root);
}

function settle(result: StandardSchemaV1.Result<unknown>, root: string): unknown {
  if (result.issues === undefined) return result.value;
  const violations: Violation[] = result.issues.slice(0, MAX_VIOLATIONS).map((issue) => ({
    field: `${root}${(issue.path ?? []).map(segment).join("")}`,
    reason: "INVALID_FIELD",
    description: issue.message,
  }));
  throw new MeshError("INVALID_FIELD", violations.map((v) => `${v.field}: ${v.description}`).join("; "), {
    advice: "Correct the field that the violation names.",
    violations,
  });
}

function segment(part: PropertyKey | StandardSchemaV1.PathSegment): string {
  const key = typeof part === "object" ? part.key : part;
  if (typeof key === "number") return `[${key}]`;
  const name = String(key);
  return /^[A-Za-z_$][\w$]*$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`;
}

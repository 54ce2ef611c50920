import { MeshError } from "./errors.ts";
import { escapeStep, fieldAt, nodeAt, sliceAt } from "./json-pointer.ts";
import { type JsonNode, parseLossless, writeLossless } from "./json-text.ts";
import { isLiteral, type Reference, type ReferenceFault, scanReferences } from "./reference-scan.ts";
import { type Hole, type Part, weave } from "./weave.ts";

export type { Reference } from "./reference-scan.ts";

/** Params ready to be resolved many times. Made by `compileTemplate`. */
export interface Template {
  /** Holds neither `$ref` nor `$literal`: the stored text is the result, byte for byte. */
  readonly isConstant: boolean;
  readonly parts: readonly Part[];
}

/** Where values come from; all JSON text. */
export interface Lookup {
  /** The run's input; undefined stands for null. */
  input(): string | undefined;
  /** The accepted output of a task; undefined where there is none. */
  output(taskKey: string): string | undefined;
}

export type Resolution =
  | { readonly ok: true; readonly text: string }
  /** `path` points to the reference within the params that found nothing, or with which they grew too large. */
  | { readonly ok: false; readonly path: string; readonly reference: string; readonly why: "missing" | "too_large" };

/** Longest resolved params, in UTF-16 units: what one acquire answer may hold. */
const MAX_RESOLVED_LENGTH = 4 * 1024 * 1024;

/** With more parts than this, a source is parsed once instead of searched for each reference. */
const MANY = 16;

/** Whether the text can hold `$ref` or `$literal` at all; a cheap test that is never wrongly false. */
export function mayHoldReferences(text: string): boolean {
  return text.includes('"$ref"') || text.includes('"$literal"') || text.includes("\\u");
}

/** The references of valid JSON text, in its order. Throws INVALID_REFERENCE at the first that is malformed. */
export function collectReferences(paramsText: string): Reference[] {
  if (!mayHoldReferences(paramsText)) return [];
  const { references, faults } = scanReferences(JSON.parse(paramsText));
  throwFirst(faults);
  return references;
}

/** Compiles params; `undefined` stands for null. Throws INVALID_REFERENCE at the first malformed reference. */
export function compileTemplate(text: string | undefined): Template {
  if (text === undefined) return { isConstant: true, parts: ["null"] };
  if (!mayHoldReferences(text)) return { isConstant: true, parts: [text] };
  const node = parseLossless(text);
  const { references, faults } = scanReferences(node);
  throwFirst(faults);
  const isConstant = references.length === 0 && !holdsLiteral(node);
  return { isConstant, parts: isConstant ? [text] : weave(node) };
}

/** Whether any object has `$literal`, as a template must unwrap it. */
function holdsLiteral(node: JsonNode): boolean {
  if (node === null || typeof node !== "object") return false;
  return isLiteral(node) || Object.values(node).some(holdsLiteral);
}

/**
 * Fills a template in, copying digits and text as they were written. A null that is found is a value; what is not
 * found takes the default, or fails with the place of its reference.
 */
export function resolveTemplate(template: Template, lookup: Lookup): Resolution {
  const find = template.parts.length <= MANY ? searcher(lookup) : parser(lookup);
  let text = "";
  for (const part of template.parts) {
    if (typeof part === "string") {
      text += part;
      continue;
    }
    const value = find(part) ?? part.fallback;
    const failed = { ok: false, path: part.reference.at, reference: part.written } as const;
    if (value === undefined) return { ...failed, why: "missing" };
    if (text.length + value.length > MAX_RESOLVED_LENGTH) return { ...failed, why: "too_large" };
    text += value;
  }
  return { ok: true, text };
}

type Find = (hole: Hole) => string | undefined;

function searcher(lookup: Lookup): Find {
  return ({ reference, steps }) => {
    const text = findSource(lookup, reference.source);
    return text === undefined ? undefined : sliceAt(text, steps);
  };
}

function parser(lookup: Lookup): Find {
  const roots = new Map<string | undefined, JsonNode | undefined>();
  return ({ reference, steps }) => {
    const { source } = reference;
    const key = source === "input" ? undefined : source.task;
    if (!roots.has(key)) {
      const text = findSource(lookup, source);
      roots.set(key, text === undefined ? undefined : parseLossless(text));
    }
    const root = roots.get(key);
    const node = root === undefined ? undefined : nodeAt(root, steps);
    return node === undefined ? undefined : writeLossless(node);
  };
}

function findSource(lookup: Lookup, source: Reference["source"]): string | undefined {
  return source === "input" ? (lookup.input() ?? "null") : lookup.output(source.task);
}

/** Writes a reference's `$ref`, as in `#/tasks/charge/output/chargeId`. */
export function writeReference(source: Reference["source"], pointer: string): string {
  return source === "input" ? `#/input${pointer}` : `#/tasks/${escapeStep(source.task)}/output${pointer}`;
}

function throwFirst(faults: readonly ReferenceFault[]): void {
  const [first] = faults;
  if (first === undefined) return;
  const field = fieldAt("params", first.at);
  throw new MeshError("INVALID_REFERENCE", `${field}: ${first.why}`, {
    violations: [{ field, reason: "INVALID_REFERENCE", description: first.why }],
  });
}

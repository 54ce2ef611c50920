import { escapeStep, readPointer } from "./json-pointer.ts";

/** A value that exists when the task is claimed: `{"$ref": "#/input/id"}` or `{"$ref": "#/tasks/KEY/output/x"}`. */
export interface Reference {
  /** JSON Pointer to the reference within the params. */
  readonly at: string;
  readonly source: "input" | { readonly task: string };
  /** JSON Pointer below the input or output; empty for all of it. */
  readonly pointer: string;
  readonly hasDefault: boolean;
}

export interface ReferenceFault {
  readonly at: string;
  readonly why: string;
}

/** A reference as a template needs it. */
export interface ReadReference {
  readonly reference: Reference;
  readonly written: string;
  readonly steps: readonly string[];
}

export interface ReferenceScan {
  readonly references: Reference[];
  readonly faults: ReferenceFault[];
}

export type Members = Readonly<Record<string, unknown>>;

export const isReference = (members: object): boolean => Object.hasOwn(members, "$ref");
export const isLiteral = (members: object): boolean => Object.hasOwn(members, "$literal");

/** The references in parsed JSON, and what is wrong with those that are malformed. Depth is bounded by `checkJson`. */
export function scanReferences(value: unknown): ReferenceScan {
  const scan: ReferenceScan = { references: [], faults: [] };
  walk(value, "", scan, true);
  return scan;
}

function walk(value: unknown, at: string, scan: ReferenceScan, mayRefer: boolean): void {
  if (value === null || typeof value !== "object") return;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) walk(value[index], `${at}/${index}`, scan, mayRefer);
  } else if (isReference(value)) {
    addReference(value as Members, at, scan, mayRefer);
  } else if (isLiteral(value)) {
    if (Object.keys(value).length > 1) scan.faults.push({ at, why: '"$literal" stands alone in its object' });
  } else {
    for (const key of Object.keys(value)) walk((value as Members)[key], `${at}/${escapeStep(key)}`, scan, mayRefer);
  }
}

function addReference(members: Members, at: string, scan: ReferenceScan, mayRefer: boolean): void {
  const why = mayRefer ? findFault(members) : "a default holds no references";
  const read = why === undefined ? readReference(members, at) : undefined;
  if (read === undefined) scan.faults.push({ at, why: why ?? MALFORMED });
  else scan.references.push(read.reference);
  if (mayRefer && read?.reference.hasDefault) walk(members.default, `${at}/default`, scan, false);
}

function findFault(members: Members): string | undefined {
  const isStray = (key: string) => key !== "$ref" && key !== "default";
  return Object.keys(members).some(isStray) ? '"$ref" stands alone, or beside "default"' : undefined;
}

/** Reads an object that has `$ref`; undefined where what it names is no reference. */
export function readReference(members: Members, at: string): ReadReference | undefined {
  const written = members.$ref;
  const match = typeof written === "string" ? TARGET.exec(written) : null;
  if (match === null) return undefined;
  const [text, key, pointer = ""] = match;
  const steps = readPointer(pointer);
  const task = key?.includes("~") ? readPointer(`/${key}`)?.[0] : key;
  if (steps === undefined || (key !== undefined && task === undefined)) return undefined;
  const source = task === undefined ? "input" : { task };
  return { reference: { at, source, pointer, hasDefault: Object.hasOwn(members, "default") }, written: text, steps };
}

const TARGET = /^#\/(?:input|tasks\/([^/]+)\/output)((?:\/.*)?)$/s;
const MALFORMED = 'must be "#/input/…" or "#/tasks/KEY/output/…", with JSON Pointers';

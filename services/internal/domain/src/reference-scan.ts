import { escapeStep, isPointer, readPointer, unescapeStep } from "./json-pointer.ts";

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

/** What a `$ref` names, without its place. */
export interface Target {
  /** Undefined stands for the run's input. */
  readonly task: string | undefined;
  readonly pointer: string;
}

/** Keys and indexes on the way to a value. It goes on changing: who keeps it, keeps its `writePath`. */
export type Path = readonly (string | number)[];

/** Is told of what a walk meets, in the order of the text. */
export interface ReferenceSink {
  found(target: Target, hasDefault: boolean, path: Path): void;
  refuse(why: string, path: Path): void;
}

export type Members = Readonly<Record<string, unknown>>;

export const isReference = (members: object): boolean => Object.hasOwn(members, "$ref");
export const isLiteral = (members: object): boolean => Object.hasOwn(members, "$literal");

/** The references in parsed JSON, and what is wrong with those that are malformed. Depth is bounded by `checkJson`. */
export function scanReferences(value: unknown): ReferenceScan {
  const references: Reference[] = [];
  const faults: ReferenceFault[] = [];
  walkReferences(value, {
    found: (target, hasDefault, path) => references.push(toReference(target, hasDefault, writePath(path))),
    refuse: (why, path) => faults.push({ at: writePath(path), why }),
  });
  return { references, faults };
}

/** The same without an object for each reference: a large definition has 100,000 of them. */
export function walkReferences(value: unknown, sink: ReferenceSink): void {
  walk(value, [], sink, true);
}

/** The JSON Pointer that a path is. */
export function writePath(path: Path): string {
  return path.map((step) => `/${typeof step === "string" ? escapeStep(step) : step}`).join("");
}

function walk(value: unknown, path: (string | number)[], sink: ReferenceSink, mayRefer: boolean): void {
  if (value === null || typeof value !== "object") return;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      path.push(index);
      walk(value[index], path, sink, mayRefer);
      path.pop();
    }
  } else if (isReference(value)) {
    meetReference(value as Members, path, sink, mayRefer);
  } else if (isLiteral(value)) {
    if (Object.keys(value).length > 1) sink.refuse('"$literal" stands alone in its object', path);
  } else {
    for (const key of Object.keys(value)) {
      path.push(key);
      walk((value as Members)[key], path, sink, mayRefer);
      path.pop();
    }
  }
}

function meetReference(members: Members, path: (string | number)[], sink: ReferenceSink, mayRefer: boolean): void {
  const hasDefault = Object.hasOwn(members, "default");
  const isStray = Object.keys(members).length > (hasDefault ? 2 : 1);
  const target = mayRefer && !isStray ? readTarget(members.$ref) : undefined;
  if (target === undefined) {
    sink.refuse(mayRefer ? (isStray ? NOT_ALONE : MALFORMED) : "a default holds no references", path);
    return;
  }
  sink.found(target, hasDefault, path);
  if (!hasDefault) return;
  path.push("default");
  walk(members.default, path, sink, false);
  path.pop();
}

/** Reads an object that has `$ref`; undefined where what it names is no reference. */
export function readReference(members: Members, at: string): ReadReference | undefined {
  const written = members.$ref;
  const target = readTarget(written);
  if (target === undefined) return undefined;
  const reference = toReference(target, Object.hasOwn(members, "default"), at);
  return { reference, written: written as string, steps: readPointer(target.pointer)! };
}

/** Reads by hand, as one expression takes twice as long for each of 100,000. */
function readTarget(written: unknown): Target | undefined {
  if (typeof written !== "string") return undefined;
  let end = INPUT.length;
  let key: string | undefined;
  if (!written.startsWith(INPUT)) {
    end = written.indexOf("/", TASKS.length);
    if (end <= TASKS.length || !written.startsWith(TASKS) || !written.startsWith(OUTPUT, end)) return undefined;
    key = written.slice(TASKS.length, end);
    if (key.includes("~") && !isPointer(`/${key}`)) return undefined;
    end += OUTPUT.length;
  }
  const pointer = written.slice(end);
  return isPointer(pointer) ? { task: key && unescapeStep(key), pointer } : undefined;
}

function toReference({ task, pointer }: Target, hasDefault: boolean, at: string): Reference {
  return { at, source: task === undefined ? "input" : { task }, pointer, hasDefault };
}

const INPUT = "#/input";
const TASKS = "#/tasks/";
const OUTPUT = "/output";
const NOT_ALONE = '"$ref" stands alone, or beside "default"';
const MALFORMED = 'must be "#/input/…" or "#/tasks/KEY/output/…", with JSON Pointers';

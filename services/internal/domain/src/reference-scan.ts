import { escapeStep, readPointer, unescapeStep } from "./json-pointer.ts";
import { isJsonNumber, type JsonNode, writeLossless } from "./json-text.ts";

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

/** A place in a template that a reference fills. */
export interface Hole {
  readonly reference: Reference;
  readonly written: string;
  readonly steps: readonly string[];
  /** JSON text; undefined where the value must be found. */
  readonly fallback: string | undefined;
}

/** Walks params once: constant text grows until a reference leaves a hole. Depth is bounded by `checkJson`. */
export class Weave {
  readonly holes: Hole[] = [];
  readonly faults: ReferenceFault[] = [];
  isConstant = true;
  #parts: (string | Hole)[] = [];
  #text = "";

  parts(): (string | Hole)[] {
    return this.#text === "" ? this.#parts : [...this.#parts, this.#text];
  }

  add(node: JsonNode, at: string, mayRefer: boolean): void {
    if (node === null || typeof node !== "object" || isJsonNumber(node)) {
      this.#text += writeLossless(node);
    } else if (Array.isArray(node)) {
      this.#addItems(node, at, mayRefer);
    } else {
      const members = node as { readonly [key: string]: JsonNode };
      if (Object.hasOwn(members, "$ref")) this.#addReference(members, at, mayRefer);
      else if (Object.hasOwn(members, "$literal")) this.#addLiteral(members, at);
      else this.#addMembers(members, at, mayRefer);
    }
  }

  #addItems(items: readonly JsonNode[], at: string, mayRefer: boolean): void {
    this.#text += "[";
    for (const [index, item] of items.entries()) {
      if (index > 0) this.#text += ",";
      this.add(item, `${at}/${index}`, mayRefer);
    }
    this.#text += "]";
  }

  #addMembers(members: { readonly [key: string]: JsonNode }, at: string, mayRefer: boolean): void {
    this.#text += "{";
    let separator = "";
    for (const key of Object.keys(members)) {
      this.#text += `${separator}${JSON.stringify(key)}:`;
      separator = ",";
      this.add(members[key]!, `${at}/${escapeStep(key)}`, mayRefer);
    }
    this.#text += "}";
  }

  #addLiteral(members: { readonly [key: string]: JsonNode }, at: string): void {
    this.isConstant = false;
    if (Object.keys(members).length > 1) this.faults.push({ at, why: '"$literal" stands alone in its object' });
    this.#text += writeLossless(members.$literal!);
  }

  #addReference(members: { readonly [key: string]: JsonNode }, at: string, mayRefer: boolean): void {
    this.isConstant = false;
    const written = members.$ref!;
    const target = typeof written === "string" ? readTarget(written) : undefined;
    const stray = Object.keys(members).find((key) => key !== "$ref" && key !== "default");
    if (!mayRefer) this.faults.push({ at, why: "a default holds no references" });
    else if (stray !== undefined) this.faults.push({ at, why: '"$ref" stands alone, or beside "default"' });
    else if (target === undefined) {
      this.faults.push({ at, why: 'must be "#/input/…" or "#/tasks/KEY/output/…", with JSON Pointers' });
    } else {
      const hasDefault = Object.hasOwn(members, "default");
      const fallback = hasDefault ? this.#constant(members.default!, `${at}/default`) : undefined;
      const { source, pointer, steps } = target;
      const hole = { reference: { at, source, pointer, hasDefault }, written: written as string, steps, fallback };
      this.holes.push(hole);
      this.#parts.push(this.#text, hole);
      this.#text = "";
    }
  }

  #constant(node: JsonNode, at: string): string {
    const before = this.#text;
    this.#text = "";
    this.add(node, at, false);
    const constant = this.#text;
    this.#text = before;
    return constant;
  }
}

interface Target {
  readonly source: Reference["source"];
  readonly pointer: string;
  readonly steps: readonly string[];
}

function readTarget(written: string): Target | undefined {
  const match = TARGET.exec(written);
  if (match === null) return undefined;
  const [, key, pointer = ""] = match;
  const steps = readPointer(pointer);
  if (steps === undefined || (key !== undefined && readPointer(`/${key}`) === undefined)) return undefined;
  return { source: key === undefined ? "input" : { task: unescapeStep(key) }, pointer, steps };
}

const TARGET = /^#\/(?:input|tasks\/([^/]+)\/output)((?:\/.*)?)$/s;

import { escapeStep } from "./json-pointer.ts";
import { isJsonNumber, type JsonNode, writeLossless } from "./json-text.ts";
import { isLiteral, isReference, type ReadReference, readReference } from "./reference-scan.ts";

/** A place in a template that a reference fills. */
export interface Hole extends ReadReference {
  /** JSON text; undefined where the value must be found. */
  readonly fallback: string | undefined;
}

export type Part = string | Hole;

type Members = { readonly [key: string]: JsonNode };

/** Cuts params, already scanned without fault, into constant text and holes. */
export function weave(node: JsonNode): Part[] {
  const loom = new Loom();
  loom.add(node, "");
  return loom.parts();
}

/** Constant text grows until a reference leaves a hole. */
class Loom {
  readonly #parts: Part[] = [];
  #text = "";

  parts(): Part[] {
    return this.#text === "" ? this.#parts : [...this.#parts, this.#text];
  }

  add(node: JsonNode, at: string): void {
    if (node === null || typeof node !== "object" || isJsonNumber(node)) this.#text += writeLossless(node);
    else if (Array.isArray(node)) this.#addItems(node, at);
    else if (isReference(node)) this.#addReference(node as Members, at);
    else if (isLiteral(node)) this.#text += writeLossless((node as Members).$literal!);
    else this.#addMembers(node as Members, at);
  }

  #addItems(items: readonly JsonNode[], at: string): void {
    this.#text += "[";
    for (const [index, item] of items.entries()) {
      if (index > 0) this.#text += ",";
      this.add(item, `${at}/${index}`);
    }
    this.#text += "]";
  }

  #addMembers(members: Members, at: string): void {
    this.#text += "{";
    let separator = "";
    for (const key of Object.keys(members)) {
      this.#text += `${separator}${JSON.stringify(key)}:`;
      separator = ",";
      this.add(members[key]!, `${at}/${escapeStep(key)}`);
    }
    this.#text += "}";
  }

  #addReference(members: Members, at: string): void {
    const read = readReference(members, at);
    if (read === undefined) throw new Error(`a reference that was not scanned: ${at}`);
    const fallback = read.reference.hasDefault ? weaveConstant(members.default!) : undefined;
    if (this.#text !== "") this.#parts.push(this.#text);
    this.#parts.push({ ...read, fallback });
    this.#text = "";
  }
}

/** A default holds literals perhaps, but no references: all of it is text. */
function weaveConstant(node: JsonNode): string {
  return weave(node).join("");
}

import { endOfString, isJsonNumber, type JsonNode } from "./json-text.ts";

/** Steps of a JSON Pointer (RFC 6901); undefined where it is malformed. The empty pointer has no steps. */
export function readPointer(pointer: string): string[] | undefined {
  if (!isPointer(pointer)) return undefined;
  return pointer === "" ? [] : pointer.slice(1).split("/").map(unescapeStep);
}

export function isPointer(text: string): boolean {
  if (text === "") return true;
  return text.startsWith("/") && !(text.includes("~") && /~(?![01])/.test(text));
}

export const escapeStep = (step: string): string =>
  step.includes("~") || step.includes("/") ? step.replaceAll("~", "~0").replaceAll("/", "~1") : step;

export const unescapeStep = (step: string): string =>
  step.includes("~") ? step.replaceAll("~1", "/").replaceAll("~0", "~") : step;

/** The path of a violation below a field: `params.items[3].sku`, with any other key in quotes: `params["a b"]`. */
export function fieldBelow(field: string, step: string | number): string {
  if (typeof step === "number" || INDEX.test(step)) return `${field}[${step}]`;
  return PLAIN_KEY.test(step) ? `${field}.${step}` : `${field}[${JSON.stringify(step)}]`;
}

export function fieldAt(field: string, pointer: string): string {
  return (readPointer(pointer) ?? [pointer]).reduce(fieldBelow, field);
}

const INDEX = /^(?:0|[1-9][0-9]{0,8})$/;
const PLAIN_KEY = /^[A-Za-z_][A-Za-z0-9_]*$/;

/**
 * Cuts the value at a pointer out of valid JSON text, byte for byte and without parsing what lies beside it;
 * undefined where there is none. Of members with the same key the last counts, as in `JSON.parse`.
 */
export function sliceAt(text: string, steps: readonly string[]): string | undefined {
  let start = skipSpace(text, 0);
  for (const step of steps) {
    const open = text.charCodeAt(start);
    const found =
      open === OPEN_BRACE
        ? findMember(text, start, step)
        : open === OPEN_BRACKET && INDEX.test(step)
          ? findItem(text, start, Number(step))
          : -1;
    if (found === -1) return undefined;
    start = found;
  }
  return text.slice(start, endOfValue(text, start));
}

/** The same in parsed JSON, for many look-ups in one text. */
export function nodeAt(root: JsonNode, steps: readonly string[]): JsonNode | undefined {
  let node: JsonNode = root;
  for (const step of steps) {
    if (node === null || typeof node !== "object" || isJsonNumber(node)) return undefined;
    if (Array.isArray(node) && !INDEX.test(step)) return undefined;
    const members = node as { readonly [key: string]: JsonNode };
    if (!Object.hasOwn(members, step)) return undefined;
    node = members[step]!;
  }
  return node;
}

function findMember(text: string, object: number, key: string): number {
  let found = -1;
  let at = skipSpace(text, object + 1);
  while (text.charCodeAt(at) === QUOTE) {
    const keyEnd = endOfString(text, at) + 1;
    const value = skipSpace(text, skipSpace(text, keyEnd) + 1);
    if (isKey(text, at, keyEnd, key)) found = value;
    at = nextPlace(text, value);
  }
  return found;
}

function findItem(text: string, array: number, index: number): number {
  let at = skipSpace(text, array + 1);
  for (let place = 0; place < index && text.charCodeAt(at) !== CLOSE_BRACKET; place++) at = nextPlace(text, at);
  return text.charCodeAt(at) === CLOSE_BRACKET ? -1 : at;
}

/** Where the next member or item begins, or the bracket that closes. */
function nextPlace(text: string, value: number): number {
  const after = skipSpace(text, endOfValue(text, value));
  return text.charCodeAt(after) === COMMA ? skipSpace(text, after + 1) : after;
}

function isKey(text: string, quote: number, end: number, key: string): boolean {
  const written = text.slice(quote + 1, end - 1);
  return written === key || (written.includes("\\") && JSON.parse(text.slice(quote, end)) === key);
}

function endOfValue(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = endOfString(text, at);
      if (depth === 0) return at + 1;
    } else if (code === OPEN_BRACE || code === OPEN_BRACKET) depth++;
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
      if (depth === 0) return at;
      depth--;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (code === COMMA || isSpace(code))) return at;
  }
  return text.length;
}

function skipSpace(text: string, start: number): number {
  let at = start;
  while (isSpace(text.charCodeAt(at))) at++;
  return at;
}

const isSpace = (code: number): boolean => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

import { invalidField } from "./errors.ts";

/** Deepest nesting of arrays and objects in a payload. */
export const MAX_JSON_DEPTH = 100;

/** A number as it was written, so that no digit is lost: what `JSON.rawJSON` makes. */
export interface JsonNumber {
  readonly rawJSON: string;
}

/** Parsed JSON in which a number is its source text; test for one with `isJsonNumber`. */
export type JsonNode =
  | null
  | boolean
  | string
  | JsonNumber
  | readonly JsonNode[]
  | { readonly [key: string]: JsonNode };

/** The part of the language that TypeScript's library does not declare yet ("JSON.parse source text access"). */
const lossless = JSON as unknown as {
  parse(text: string, reviver: (key: string, value: unknown, context: { source: string }) => unknown): unknown;
  rawJSON(text: string): JsonNumber;
  isRawJSON(value: unknown): value is JsonNumber;
};

export type JsonResult = { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly why: string };

/** Throws INVALID_PAYLOAD naming `field` where the text is no JSON or is nested over 100 deep. */
export function checkJson(text: string, field: string): void {
  const read = readJson(text);
  if (!read.ok) throw invalidField(field, read.why, "INVALID_PAYLOAD");
}

/** Parses JSON in the usual, lossy way, or says what is wrong; it does not repeat the text, which may hold secrets. */
export function readJson(text: string): JsonResult {
  // Half of a text is closing brackets, so a short one cannot be too deep and valid.
  if (text.length > 2 * MAX_JSON_DEPTH && hasManyBrackets(text) && isTooDeep(text)) {
    return { ok: false, why: `must be nested at most ${MAX_JSON_DEPTH} deep` };
  }
  try {
    return { ok: true, value: JSON.parse(text) };
  } catch {
    return { ok: false, why: "must be valid JSON" };
  }
}

/**
 * Parses JSON without touching a digit: 9007199254740993, 1e400, -0 and 1.0 come back as written. A key `__proto__`
 * is plain data, since `JSON.parse` defines properties and never assigns them. The text must have passed `checkJson`.
 */
export function parseLossless(text: string): JsonNode {
  const revive = (_key: string, value: unknown, context: { source: string }) =>
    typeof value === "number" ? lossless.rawJSON(context.source) : value;
  return lossless.parse(text, revive) as JsonNode;
}

export function writeLossless(node: JsonNode): string {
  return JSON.stringify(node);
}

export function isJsonNumber(node: JsonNode): node is JsonNumber {
  return lossless.isRawJSON(node);
}

/**
 * One text for all texts that mean the same: no white space, keys sorted by UTF-16 code units (the last of twins
 * counts), strings escaped one way, and numbers by their exact decimal value, so 1.0, 1 and 10e-1 are equal while
 * 9007199254740993 and 9007199254740992 are not. For hashes and comparisons, not for storing.
 */
export function canonicalJson(text: string): string {
  return writeCanonical(parseLossless(text));
}

function writeCanonical(node: JsonNode): string {
  if (node === null || typeof node !== "object") return JSON.stringify(node);
  if (isJsonNumber(node)) return canonicalNumber(node.rawJSON);
  if (isArray(node)) return `[${node.map(writeCanonical).join(",")}]`;
  const members = Object.keys(node).sort();
  return `{${members.map((key) => `${JSON.stringify(key)}:${writeCanonical(node[key]!)}`).join(",")}}`;
}

/** Digits without zeros at either end, then the power of ten; -0 stays apart from 0, as programs can tell them apart. */
function canonicalNumber(source: string): string {
  const [, sign = "", whole = "", fraction = "", power = "0"] = NUMBER.exec(source)!;
  const digits = whole + fraction;
  let start = 0;
  let end = digits.length;
  while (digits.charCodeAt(start) === ZERO) start++;
  while (end > start && digits.charCodeAt(end - 1) === ZERO) end--;
  const significant = digits.slice(start, end);
  if (significant === "") return `${sign}0`;
  const exponent = BigInt(power) - BigInt(fraction.length) + BigInt(digits.length - end);
  return exponent === 0n ? sign + significant : `${sign}${significant}e${exponent}`;
}

const NUMBER = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;

/** Whether so many brackets open, those in strings included, that the text may be too deep; faster than to know. */
function hasManyBrackets(text: string): boolean {
  return countUpTo(MAX_JSON_DEPTH + 1, text, "[") + countUpTo(MAX_JSON_DEPTH + 1, text, "{") > MAX_JSON_DEPTH;
}

function countUpTo(most: number, text: string, bracket: string): number {
  let count = 0;
  for (let at = text.indexOf(bracket); at !== -1 && count < most; at = text.indexOf(bracket, at + 1)) count++;
  return count;
}

/** Written without recursion and before any parser sees the text, so that no depth can overflow a stack. */
function isTooDeep(text: string): boolean {
  let depth = 0;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code === QUOTE) index = endOfString(text, index);
    else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
      depth++;
      if (depth > MAX_JSON_DEPTH) return true;
    } else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth--;
  }
  return false;
}

/** Place of the quote that ends the string which starts at `start`, or the end of a text that has none. */
export function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let escapes = 0;
    while (text.charCodeAt(end - 1 - escapes) === BACKSLASH) escapes++;
    if (escapes % 2 === 0) return end;
  }
  return text.length;
}

function isArray(node: JsonNode): node is readonly JsonNode[] {
  return Array.isArray(node);
}

const QUOTE = 0x22;
const ZERO = 0x30;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

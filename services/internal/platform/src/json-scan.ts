import { MAX_JSON_DEPTH } from "./rpc-limits.ts";

export type PathSegment = string | number;

/** What is wrong with a JSON text, and where. */
export class JsonFault extends Error {
  override readonly name = "JsonFault";
  readonly path: readonly PathSegment[];

  constructor(path: readonly PathSegment[], message: string) {
    super(message);
    this.path = [...path];
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const SPACE = /[ \t\n\r]*/y;
const LITERAL = /true|false|null/y;

interface Level {
  /** The keys seen so far; undefined in an array. */
  readonly keys: Set<string> | undefined;
}

/**
 * Reads a JSON text strictly and without recursion, and throws a JsonFault with the path of the first fault:
 * syntax, nesting over 250, a number that is infinite as a double, or a key given twice. What `JSON.parse`
 * would let pass or report without a place.
 */
export function scanJson(text: string): void {
  const path: PathSegment[] = [];
  const levels: Level[] = [];
  let at = skip(text, 0);

  for (;;) {
    at = readValue();
    // After a value: close what ends here, and go on to the next member.
    for (;;) {
      const level = levels.at(-1);
      at = skip(text, at);
      if (level === undefined) {
        if (at < text.length) fault("there is more after the end of the JSON value");
        return;
      }
      const next = text[at];
      if (next === ",") {
        at = skip(text, at + 1);
        if (level.keys !== undefined) readKey(level.keys);
        else path.push((path.pop() as number) + 1);
        break;
      }
      if (next !== (level.keys === undefined ? "]" : "}")) fault("expected a comma or the end of what is open");
      at++;
      levels.pop();
      path.pop();
    }
  }

  /** Reads a scalar, or opens objects and arrays down to the first scalar or empty one. */
  function readValue(): number {
    for (;;) {
      const first = text[at];
      if (first !== "{" && first !== "[") return readScalar(first);
      const empty = skip(text, at + 1);
      if (levels.length >= MAX_JSON_DEPTH) fault(`nested deeper than ${MAX_JSON_DEPTH}`);
      if (text[empty] === (first === "{" ? "}" : "]")) return empty + 1;
      at = empty;
      if (first === "{") {
        const keys = new Set<string>();
        levels.push({ keys });
        path.push("");
        readKey(keys);
      } else {
        levels.push({ keys: undefined });
        path.push(0);
      }
    }
  }

  /** Reads a key and its colon; the last segment of the path becomes the key. */
  function readKey(keys: Set<string>): void {
    path.pop();
    const end = readString(text, at);
    if (end < 0) {
      fault("expected a key in double quotes");
    }
    const key = JSON.parse(text.slice(at, end)) as string;
    path.push(key);
    if (keys.has(key)) fault("the key is given twice");
    keys.add(key);
    at = skip(text, end);
    if (text[at] !== ":") fault("expected a colon after the key");
    at = skip(text, at + 1);
  }

  function readScalar(first: string | undefined): number {
    if (first === '"') {
      const end = readString(text, at);
      if (end < 0) fault("the string is not closed, or holds a control character or a wrong escape");
      return end;
    }
    const end = match(LITERAL, text, at);
    if (end >= 0) return end;
    const numberEnd = match(NUMBER, text, at);
    if (numberEnd < 0) fault(first === undefined ? "the text ends too early" : "expected a JSON value");
    if (!Number.isFinite(Number(text.slice(at, numberEnd)))) fault("the number is too large for a double");
    return numberEnd;
  }

  function fault(message: string): never {
    throw new JsonFault(path, message);
  }
}

function match(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : -1;
}

/** Where the string that begins here ends, or -1. Not by one pattern: a long string would exhaust its stack. */
function readString(text: string, at: number): number {
  if (text[at] !== '"') return -1;
  for (let i = at + 1; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) return i + 1;
    if (code < 0x20) return -1;
    if (code !== BACKSLASH) continue;
    const end = match(ESCAPE, text, i);
    if (end < 0) return -1;
    i = end - 1;
  }
  return -1;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

function skip(text: string, at: number): number {
  const code = text.charCodeAt(at);
  // Most JSON that programs send has no white space at all.
  if (code > 0x20 || at >= text.length) return at;
  return match(SPACE, text, at);
}

import { invalidField } from "./errors.ts";
import { readJson } from "./json-text.ts";
import { findTextFault } from "./names.ts";

const VERSION = "1";
const MAX_TOKEN_LENGTH = 16_384;

/** Writes where the next page begins: the sort key and id of the last row, as text. Opaque to the caller. */
export function writePageToken(parts: readonly string[]): string {
  const body = JSON.stringify(parts);
  return toBase64Url(`${VERSION}${checksum(body)}${body}`);
}

/** What a part is, so that a token of another list is noticed: an `id` is of 8 bytes, an `int` of 4, neither negative. */
export type TokenPart = "text" | "id" | "int";

/**
 * Reads the parts back; undefined for the empty token of a first page. Throws INVALID_FIELD where it is not a token
 * of such parts: made up, cut, of another list, or of another version.
 */
export function readPageToken(token: string, field: string, ...kinds: readonly TokenPart[]): string[] | undefined {
  if (token === "") return undefined;
  const text = token.length <= MAX_TOKEN_LENGTH ? fromBase64Url(token) : undefined;
  const body = text?.slice(CHECKED_FROM) ?? "";
  const isIntact = text?.slice(0, CHECKED_FROM) === `${VERSION}${checksum(body)}`;
  const parts = isIntact ? readParts(body) : undefined;
  if (parts?.length === kinds.length && parts.every((part, i) => isOfKind(part, kinds[i]!))) return parts;
  throw invalidField(field, "must be the token that the last page of the same list gave");
}

function readParts(body: string): string[] | undefined {
  const read = readJson(body);
  return read.ok && Array.isArray(read.value) && read.value.every(isPlainText) ? read.value : undefined;
}

const isPlainText = (part: unknown): part is string => typeof part === "string" && findTextFault(part) === undefined;

const MOST = { id: 2n ** 63n - 1n, int: 2n ** 31n - 1n } as const;

const isOfKind = (part: string, kind: TokenPart): boolean =>
  kind === "text" || (/^\d{1,19}$/.test(part) && BigInt(part) <= MOST[kind]);

const CHECKSUM_LENGTH = 8;
const CHECKED_FROM = VERSION.length + CHECKSUM_LENGTH;

/** FNV-1a: against accidents, not against forgers; a forged token reads no more than a filter could ask for. */
function checksum(text: string): string {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193) >>> 0;
  }
  return hash.toString(16).padStart(CHECKSUM_LENGTH, "0");
}

function toBase64Url(text: string): string {
  const binary = Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function fromBase64Url(token: string): string | undefined {
  if (!/^[A-Za-z0-9_-]*$/.test(token)) return undefined;
  try {
    const binary = atob(token.replaceAll("-", "+").replaceAll("_", "/"));
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(binary, (byte) => byte.charCodeAt(0)));
  } catch {
    // Not base64 or not UTF-8: no token of ours.
    return undefined;
  }
}

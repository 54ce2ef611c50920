/** Longest error message or log line that is kept, in bytes of UTF-8. */
const MAX_PRINTABLE_BYTES = 8192;

const CUT = "…";

/**
 * Any bytes as text that a terminal, a log and a column of text can hold: bytes that are not UTF-8 become `\xff`,
 * what is not printable `\u0000` and a lone surrogate `\ud800`; line feeds and tabs stay. What is longer is cut, with
 * a mark.
 */
export function printable(value: string | Uint8Array, maxBytes = MAX_PRINTABLE_BYTES): string {
  const text = typeof value === "string" ? value : decode(value.subarray(0, maxBytes + 4));
  return cut(text.slice(0, maxBytes + 1).replace(UNPRINTABLE, escapeCharacter), maxBytes);
}

// Control characters, what turns the direction of text around, line separators, and lone surrogates.
const UNPRINTABLE = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]|\p{Surrogate}/gu;

function escapeCharacter(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

function decode(bytes: Uint8Array): string {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let start = 0; start < bytes.length; ) {
    const length = sequenceLength(bytes[start]!);
    try {
      text += decoder.decode(bytes.subarray(start, start + length));
      start += length;
    } catch {
      // The one way to learn that bytes are not UTF-8; what they are is shown instead.
      text += `\\x${bytes[start]!.toString(16).padStart(2, "0")}`;
      start++;
    }
  }
  return text;
}

function sequenceLength(lead: number): number {
  if (lead < 0xc0) return 1;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}

function cut(text: string, maxBytes: number): string {
  const room = new Uint8Array(maxBytes);
  const { read, written } = new TextEncoder().encodeInto(text, room);
  if (read === text.length) return text;
  const mark = new TextEncoder().encode(CUT).length;
  // Cutting at a character, not inside one.
  let end = Math.max(0, written - mark);
  while (end > 0 && (room[end]! & 0xc0) === 0x80) end--;
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(room.subarray(0, end)) + CUT;
}

import { invalidField } from "./errors.ts";

export const MAX_NAME_BYTES = 128;
const MAX_KEY_BYTES = 1024;

/** A name: 1 to 128 bytes of [A-Za-z0-9._/-]. Throws INVALID_FIELD naming `field`. */
export function readName(value: string | undefined, field: string): string {
  return readBy(findNameFault, value, field);
}

/** A key: 1 to 1,024 bytes of any UTF-8 without NUL. Throws INVALID_FIELD naming `field`. */
export function readKey(value: string | undefined, field: string): string {
  return readBy(findKeyFault, value, field);
}

export function findNameFault(value: string): string | undefined {
  return NAME.test(value) ? undefined : "must be 1 to 128 characters of [A-Za-z0-9._/-]";
}

/** A capability: like a name, and "=" too, as in `region=eu`. */
export function findCapabilityFault(value: string): string | undefined {
  return CAPABILITY.test(value) ? undefined : "must be 1 to 128 characters of [A-Za-z0-9._/=-]";
}

export function findKeyFault(value: string): string | undefined {
  return (
    findTextFault(value) ?? (value === "" || exceedsUtf8(value, MAX_KEY_BYTES) ? "must be 1 to 1024 bytes" : undefined)
  );
}

/** What keeps text out of a column of text: NUL, or half of a surrogate pair. */
export function findTextFault(value: string): string | undefined {
  if (value.includes("\0")) return "must not hold NUL";
  return value.isWellFormed() ? undefined : "must not hold a lone surrogate";
}

/** Texts of a filter by their fields: whatever a column of text can hold. Throws INVALID_FIELD naming the field. */
export function checkTexts(texts: Readonly<Record<string, string>>): void {
  for (const [field, text] of Object.entries(texts)) {
    const fault = findTextFault(text);
    if (fault !== undefined) throw invalidField(field, fault);
  }
}

/** Whether the text needs more than `maxBytes` in UTF-8. */
export function exceedsUtf8(text: string, maxBytes: number): boolean {
  // A UTF-16 unit becomes one to three bytes.
  if (text.length > maxBytes) return true;
  if (text.length * 3 <= maxBytes) return false;
  return new TextEncoder().encode(text).length > maxBytes;
}

function readBy(findFault: (value: string) => string | undefined, value: string | undefined, field: string): string {
  const why = findFault(value ?? "");
  if (value === undefined || why !== undefined) throw invalidField(field, why ?? "must be given");
  return value;
}

const NAME = /^[A-Za-z0-9._/-]{1,128}$/;
const CAPABILITY = /^[A-Za-z0-9._/=-]{1,128}$/;

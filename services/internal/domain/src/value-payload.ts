import { invalidField } from "./errors.ts";
import { fieldBelow } from "./json-pointer.ts";
import { MAX_JSON_DEPTH } from "./json-text.ts";

/**
 * Writes a payload that came as a `google.protobuf.Value` as JSON text. Numbers went through a double on the way, so a
 * whole number from 2^53 on may have lost digits before it got here: it is refused (INVALID_PAYLOAD) with its path.
 */
export function valueToJson(value: unknown, field: string): string {
  return write(value, field, 0);
}

function write(value: unknown, field: string, depth: number): string {
  switch (typeof value) {
    case "string":
    case "boolean":
      return JSON.stringify(value);
    case "number":
      return writeNumber(value, field);
    case "object":
      if (value === null) return "null";
      if (depth === MAX_JSON_DEPTH) throw refuse(field, `must be nested at most ${MAX_JSON_DEPTH} deep`);
      return Array.isArray(value) ? writeItems(value, field, depth + 1) : writeMembers(value, field, depth + 1);
    default:
      throw refuse(field, "must be a JSON value");
  }
}

function writeNumber(value: number, field: string): string {
  if (!Number.isFinite(value)) throw refuse(field, "must be a finite number");
  if (Math.abs(value) >= 2 ** 53) {
    throw refuse(field, "whole numbers of 2^53 and more lose digits here: send it as text, or the payload as bytes");
  }
  return Object.is(value, -0) ? "-0" : String(value);
}

function writeItems(items: readonly unknown[], field: string, depth: number): string {
  return `[${items.map((item, index) => write(item, fieldBelow(field, index), depth)).join(",")}]`;
}

function writeMembers(members: object, field: string, depth: number): string {
  const written = Object.entries(members).map(
    ([key, value]) => `${JSON.stringify(key)}:${write(value, fieldBelow(field, key), depth)}`,
  );
  return `{${written.join(",")}}`;
}

const refuse = (field: string, why: string) => invalidField(field, why, "INVALID_PAYLOAD");

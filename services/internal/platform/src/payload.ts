import { toJson } from "@bufbuild/protobuf";
import { type Value, ValueSchema } from "@bufbuild/protobuf/wkt";
import { invalidField } from "@runmesh/domain/errors";
import { checkJson } from "@runmesh/domain/json-text";
import { valueToJson } from "@runmesh/domain/value-payload";

/** Longest payload that a row holds. */
const MAX_PAYLOAD_BYTES = 256 * 1024;

/** A payload as contracts carry it: a Value for people, or bytes of JSON text. */
export type Payload =
  | { readonly case: string; readonly value: Uint8Array | Value }
  | { readonly case: undefined; readonly value?: undefined };

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Reads a payload as JSON text; `undefined` stands for null. Throws INVALID_PAYLOAD or TOO_LARGE naming `field`. */
export function readPayload(payload: Payload, field: string): string | undefined {
  if (payload.case === undefined) return undefined;
  const text = payload.value instanceof Uint8Array ? decode(payload.value, field) : writeValue(payload.value, field);
  if (text.length > MAX_PAYLOAD_BYTES || Buffer.byteLength(text) > MAX_PAYLOAD_BYTES) {
    throw invalidField(field, `a payload is at most ${MAX_PAYLOAD_BYTES} bytes of JSON`, "TOO_LARGE");
  }
  return text;
}

function decode(bytes: Uint8Array, field: string): string {
  if (bytes.length > MAX_PAYLOAD_BYTES) {
    throw invalidField(field, `a payload is at most ${MAX_PAYLOAD_BYTES} bytes of JSON`, "TOO_LARGE");
  }
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch (cause) {
    throw invalidField(field, `not UTF-8: ${(cause as Error).message}`, "INVALID_PAYLOAD");
  }
  checkJson(text, field);
  return text;
}

const writeValue = (value: Value, field: string): string => valueToJson(toJson(ValueSchema, value), field);

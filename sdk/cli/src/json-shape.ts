import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type MessageShape,
  ScalarType,
  toJson,
} from "@bufbuild/protobuf";
import { type ReflectList, type ReflectMap, type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { parseLossless } from "./lossless-json.ts";

/**
 * A message as scripts get it: camelCase names, ids and other 64-bit integers as strings, times in RFC 3339, states by
 * their bare names ("SUCCEEDED"), and payloads (`*_json` fields) as the JSON they hold, under the name without "Json",
 * digit for digit. Texts, ids, times and messages that are not set are left out; counts, flags, lists and maps never are.
 */
export function toShape<D extends DescMessage>(schema: D, message: MessageShape<D>): Record<string, unknown> {
  return shapeOf(reflect(schema, message));
}

function shapeOf(message: ReflectMessage): Record<string, unknown> {
  const shape: Record<string, unknown> = {};
  for (const field of message.fields) {
    if (!message.isSet(field) && !isAlwaysShown(field)) continue;
    const value = message.get(field);
    if (isPayload(field)) shape[field.localName.slice(0, -"Json".length)] = readPayload(value as Uint8Array);
    else if (field.fieldKind === "list") shape[field.localName] = [...(value as ReflectList)].map((v) => one(field, v));
    else if (field.fieldKind === "map") shape[field.localName] = Object.fromEntries(value as ReflectMap);
    else shape[field.localName] = one(field, value);
  }
  return shape;
}

/** The value of a field, or one item of its list. */
function one(field: DescField, value: unknown): unknown {
  if (field.enum !== undefined) return enumName(field.enum, value as number);
  if (field.message === undefined) return typeof value === "bigint" ? String(value) : value;
  const message = value as ReflectMessage;
  return field.message.typeName.startsWith("google.protobuf.")
    ? toJson(message.desc, message.message)
    : shapeOf(message);
}

/** "SUCCEEDED" for STATE_SUCCEEDED; the number for one that a newer server knows. */
export function enumName(desc: DescEnum, value: number): string {
  const name = desc.value[value]?.name ?? String(value);
  return desc.sharedPrefix === undefined ? name : name.slice(desc.sharedPrefix.length);
}

/** Text of a payload that should be JSON; what is not is given as text, so that it can be looked at. */
function readPayload(bytes: Uint8Array): unknown {
  const text = new TextDecoder().decode(bytes);
  try {
    return parseLossless(text);
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return text;
    throw error;
  }
}

function isPayload(field: DescField): boolean {
  return field.fieldKind === "scalar" && field.localName.endsWith("Json") && field.name.endsWith("_json");
}

function isAlwaysShown(field: DescField): boolean {
  if (field.oneof !== undefined || isPayload(field)) return false;
  if (field.fieldKind === "list" || field.fieldKind === "map" || field.fieldKind === "enum") return true;
  return field.fieldKind === "scalar" && ALWAYS.has(field.scalar);
}

const ALWAYS = new Set<ScalarType>([ScalarType.BOOL, ScalarType.UINT32, ScalarType.SINT32, ScalarType.UINT64]);

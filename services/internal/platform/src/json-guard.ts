import type { DescEnum, DescField, DescMessage, JsonObject, JsonValue } from "@bufbuild/protobuf";
import { fromJson } from "@bufbuild/protobuf";
import { hasCustomJsonRepresentation } from "@bufbuild/protobuf/wkt";
import { MeshError, type Reason } from "@runmesh/domain/errors";
import { JsonFault, type PathSegment, scanJson } from "./json-scan.ts";
import { MAX_RECURSION } from "./rpc-limits.ts";

const OPTIONS = { ignoreUnknownFields: false, recursionLimit: MAX_RECURSION };
const MAX_PATH_LENGTH = 1024;
/** Names that are told of a message or an enum; with more the contract is read sooner. */
const MAX_NAMED = 30;

/**
 * Checks the JSON of a request message before the library parses it: INVALID_PAYLOAD when it is no JSON that can be
 * kept without loss, INVALID_FIELD when it is not the message that is asked for, each with the path of the fault.
 */
export function checkJson(desc: DescMessage, bytes: Uint8Array): void {
  const json = JSON.parse(checkJsonText(desc, bytes)) as JsonValue;
  try {
    fromJson(desc, json, OPTIONS);
  } catch (cause) {
    const found = findFault(desc, json, []) ?? { path: [], message: describe(cause) };
    throw refused("INVALID_FIELD", formatPath(desc, found.path), found.message, cause);
  }
}

/** The first half of the check, which finds what the library would let pass; returns the text. */
export function checkJsonText(desc: DescMessage, bytes: Uint8Array): string {
  const text = decode(desc, bytes);
  try {
    scanJson(text);
  } catch (error) {
    if (!(error instanceof JsonFault)) throw error;
    throw refused("INVALID_PAYLOAD", formatPath(desc, error.path), error.message, error);
  }
  return text;
}

function refused(reason: Reason, field: string, description: string, cause: unknown): MeshError {
  return new MeshError(reason, `${field}: ${description}`, { violations: [{ field, reason, description }], cause });
}

/** Text of the bytes. Bytes that are no UTF-8 are refused with the path of the value they stand in. */
function decode(desc: DescMessage, bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    // The text up to the first wrong byte ends too early by construction, so the scan ends at its place.
    const path = findPath(readablePart(bytes));
    throw refused("INVALID_PAYLOAD", formatPath(desc, path), "the bytes are not UTF-8", cause);
  }
}

function findPath(text: string): readonly PathSegment[] {
  try {
    scanJson(text);
  } catch (error) {
    if (error instanceof JsonFault) return error.path;
  }
  return [];
}

/** What comes before the first byte that is not UTF-8. */
function readablePart(bytes: Uint8Array): string {
  const text = new TextDecoder("utf-8").decode(bytes);
  const lenient = new TextEncoder().encode(text);
  let same = 0;
  while (same < bytes.length && bytes[same] === lenient[same]) same++;
  return new TextDecoder("utf-8").decode(bytes.subarray(0, same)).replace(/\ufffd+$/, "");
}

interface Fault {
  readonly path: readonly PathSegment[];
  readonly message: string;
}

/** Tries each member of a refused message by itself, and goes down into the first that is refused alone. */
function findFault(desc: DescMessage, json: JsonValue, path: readonly PathSegment[]): Fault | undefined {
  if (json === null || typeof json !== "object" || Array.isArray(json) || hasCustomJsonRepresentation(desc)) {
    const message = problem(desc, json);
    return message === undefined ? undefined : { path, message };
  }
  for (const [key, value] of Object.entries(json)) {
    const field = findField(desc, key);
    if (field === undefined) return { path: [...path, key], message: noSuchField(desc) };
    const alone: JsonObject = Object.fromEntries([[key, value]]);
    if (problem(desc, alone) === undefined) continue;
    return findInField(desc, field, key, value, path) ?? { path: [...path, key], message: problem(desc, alone)! };
  }
  // Each is right alone, so two of them exclude each other: two fields of one choice, or two spellings of one field.
  const message = problem(desc, json);
  return message === undefined ? undefined : { path: [...path, ...Object.keys(json).slice(-1)], message };
}

function findInField(
  desc: DescMessage,
  field: DescField,
  key: string,
  value: JsonValue,
  path: readonly PathSegment[],
): Fault | undefined {
  const here = [...path, key];
  if (field.fieldKind === "enum") return { path: here, message: noSuchValue(field.enum) };
  if (field.fieldKind === "message") return findFault(field.message, value, here);
  if (field.fieldKind === "list" && Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      const message = problem(desc, Object.fromEntries([[key, [item]]]));
      if (message === undefined) continue;
      const deeper = field.listKind === "message" ? findFault(field.message, item, [...here, index]) : undefined;
      const told = field.listKind === "enum" ? noSuchValue(field.enum) : message;
      return deeper ?? { path: [...here, index], message: told };
    }
  }
  if (field.fieldKind === "map" && value !== null && typeof value === "object" && !Array.isArray(value)) {
    for (const [entry, item] of Object.entries(value)) {
      const message = problem(desc, Object.fromEntries([[key, Object.fromEntries([[entry, item]])]]));
      if (message === undefined) continue;
      const deeper = field.mapKind === "message" ? findFault(field.message, item, [...here, entry]) : undefined;
      return deeper ?? { path: [...here, entry], message };
    }
  }
  return undefined;
}

function noSuchField(desc: DescMessage): string {
  const names = desc.fields.map((field) => field.name);
  const has = names.length === 0 ? "none" : names.length > MAX_NAMED ? "others" : names.join(", ");
  return `${desc.typeName} has no such field; it has ${has}`;
}

function noSuchValue(desc: DescEnum): string {
  // The first one stands for "not set".
  const names = desc.values.slice(1).map((value) => value.name);
  return names.length > MAX_NAMED ? `is no ${desc.typeName}` : `must be one of ${names.join(", ")}`;
}

function problem(desc: DescMessage, json: JsonValue): string | undefined {
  try {
    fromJson(desc, json, OPTIONS);
    return undefined;
  } catch (error) {
    return describe(error);
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function findField(desc: DescMessage, key: string): DescField | undefined {
  return desc.fields.find((field) => field.name === key || field.jsonName === key);
}

/** A path as violations write it: proto names of fields, `[3]` in lists, `["a b"]` where a key is no plain word. */
function formatPath(desc: DescMessage, path: readonly PathSegment[]): string {
  let text = "";
  let message: DescMessage | undefined = desc;
  let field: DescField | undefined;
  for (const segment of path) {
    if (typeof segment === "number") {
      text += `[${segment}]`;
    } else if (field?.fieldKind === "map") {
      text += `[${JSON.stringify(segment)}]`;
      message = field.mapKind === "message" ? field.message : undefined;
      field = undefined;
    } else {
      field = message && !hasCustomJsonRepresentation(message) ? findField(message, segment) : undefined;
      const name = field?.name ?? segment;
      text += /^[A-Za-z_$][\w$-]*$/.test(name) ? `${text === "" ? "" : "."}${name}` : `[${JSON.stringify(name)}]`;
      message = field !== undefined && field.fieldKind !== "map" ? (field.message ?? undefined) : undefined;
    }
    if (text.length > MAX_PATH_LENGTH) return `${text.slice(0, MAX_PATH_LENGTH)}…`;
  }
  return text === "" ? "body" : text;
}

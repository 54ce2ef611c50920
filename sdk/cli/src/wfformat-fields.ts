import { UsageError } from "./usage-error.ts";

/** Reads one field of a WfFormat document, and names its path where it is not what it should be. */
export function readRecord(value: unknown, path: string): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw new UsageError(`${path} must be an object`);
}

export function readText(value: unknown, path: string): string {
  if (typeof value === "string" && value !== "") return value;
  throw new UsageError(`${path} must be a text that is not empty`);
}

export function readList(value: unknown, path: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw new UsageError(`${path} must be a list`);
}

export function readTextList(value: unknown, path: string): readonly string[] {
  return readList(value, path).map((item, index) => readText(item, `${path}[${index}]`));
}

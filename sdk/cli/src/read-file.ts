import { readFile } from "node:fs/promises";
import type { Host } from "./host.ts";
import { UsageError } from "./usage-error.ts";

/** Bytes of a file, or of standard input for "-". */
export async function readFileOrStdin(path: string, host: Host): Promise<Uint8Array> {
  if (path === "-") return host.readStdin();
  try {
    return await readFile(path);
  } catch (cause) {
    throw new UsageError(`cannot read ${path}: ${(cause as NodeJS.ErrnoException).code ?? String(cause)}`, { cause });
  }
}

/** Text of a file that must be UTF-8, a byte order mark in front of it taken away. */
export function readUtf8(bytes: Uint8Array, what: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new UsageError(`${what} is not UTF-8`, { cause });
  }
}

/** JSON text as it was given: in the argument, in a file as "@file", or on standard input as "-". Every digit stays. */
export async function readJsonArgument(argument: string, host: Host, what: string): Promise<Uint8Array> {
  const isFile = argument === "-" || argument.startsWith("@");
  const bytes = isFile
    ? await readFileOrStdin(argument === "-" ? "-" : argument.slice(1), host)
    : new TextEncoder().encode(argument);
  const text = readUtf8(bytes, what);
  try {
    JSON.parse(text);
  } catch (cause) {
    throw new UsageError(`${what} is not JSON: ${(cause as Error).message}`, {
      cause,
      advice: `Quote it for the shell, as in '{"id": "7"}', or give a file as @input.json.`,
    });
  }
  return new TextEncoder().encode(text);
}

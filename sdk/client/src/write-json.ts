import { MeshError } from "./errors.ts";

const encoder = new TextEncoder();

/** A value as JSON text. Throws INVALID_PAYLOAD naming `field` for what JSON cannot hold. */
export function writeJson(value: unknown, field: string): Uint8Array<ArrayBuffer> {
  let text: string | undefined;
  let cause: unknown;
  try {
    text = JSON.stringify(value);
  } catch (thrown) {
    cause = thrown;
  }
  if (text !== undefined) return encoder.encode(text);
  const description = `the ${field} is not JSON${cause instanceof Error ? `: ${cause.message}` : ""}`;
  throw new MeshError("INVALID_PAYLOAD", description, {
    advice: "Pass what JSON can hold.",
    violations: [{ field, reason: "INVALID_PAYLOAD", description }],
    cause,
  });
}

import { hash } from "node:crypto";

/** The first 16 bytes of SHA-256, written as a UUID: how keys and request ids are compared and kept. */
export function digestOf(text: string): string {
  const hex = hash("sha256", text, "hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`;
}

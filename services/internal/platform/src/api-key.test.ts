import { MeshError } from "@runmesh/domain/errors";
import { expect, test } from "vitest";
import {
  assertProductionSecret,
  createKeyId,
  createKeySecret,
  hashApiKey,
  isOneOf,
  readApiKey,
  writeApiKey,
} from "./api-key.ts";

const MESH = "k".repeat(32);

test("a key's text is read back, and nothing else is taken for one", () => {
  const key = { id: createKeyId(), secret: createKeySecret() };
  const text = writeApiKey(key);

  expect(text).toMatch(/^rm_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$/);
  expect(readApiKey(text)).toEqual(key);
  for (const other of ["", "rm_", text.slice(1), `${text}a`, text.slice(0, -1), text.toUpperCase(), `${text}\n`]) {
    expect(readApiKey(other), other).toBeUndefined();
  }
});

test("a hash holds for one id, one secret and one mesh", () => {
  const key = { id: createKeyId(), secret: createKeySecret() };
  const hash = hashApiKey(key, MESH);

  expect(isOneOf(hash, [Buffer.alloc(32), hashApiKey(key, MESH)])).toBe(true);
  expect(isOneOf(hash, [hashApiKey(key, `${MESH}k`), hashApiKey({ ...key, id: createKeyId() }, MESH)])).toBe(false);
  expect(isOneOf(hash, [hash.subarray(1)])).toBe(false);
  expect(isOneOf(hash, [])).toBe(false);
});

test("a secret that is short, monotonous or of an example is refused, and not named", () => {
  const bad = ["short", "abababababababababababababababababab", "this-is-a-dev-value-0123456789-0123456789", ""];

  for (const secret of bad) {
    const refused = () => assertProductionSecret(secret, "RUNMESH_KEY_SECRET");
    expect(refused).toThrow(MeshError);
    if (secret !== "") expect(refused).not.toThrow(secret);
  }
  expect(() => assertProductionSecret("q7Zr1mXw9Lk3Vt5Yb8Nc2Hf6Jg4Ps0Qx", "RUNMESH_KEY_SECRET")).not.toThrow();
});

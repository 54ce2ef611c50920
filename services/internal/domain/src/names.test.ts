import { expect, test } from "vitest";
import { exceedsUtf8, findCapabilityFault, readKey, readName } from "./names.ts";

const refusal = (field: string) =>
  expect.objectContaining({ reason: "INVALID_FIELD", violations: [expect.objectContaining({ field })] });

test.each(["a", "A-z.0_9/x", "x".repeat(128)])("%s is a name", (name) => {
  expect(readName(name, "name")).toBe(name);
});

test.each([undefined, "", "x".repeat(129), "a b", "a\n", "é", "a\0", "\ud800", "region=eu"])(
  "%j is no name",
  (name) => {
    expect(() => readName(name, "definition.name")).toThrow(refusal("definition.name"));
  },
);

test.each(["region=eu", "gpu"])("%s is a capability", (capability) => {
  expect(findCapabilityFault(capability)).toBeUndefined();
});

test.each(["order 7", "é".repeat(512), "\u0001", "💡"])("%s is a key", (key) => {
  expect(readKey(key, "key")).toBe(key);
});

test.each([undefined, "", "é".repeat(513), "x".repeat(1025), "a\0b", "\ud83d", "\udca1a"])("%j is no key", (key) => {
  expect(() => readKey(key, "idempotency_key")).toThrow(refusal("idempotency_key"));
});

test("size is counted in bytes of UTF-8", () => {
  expect(exceedsUtf8("éé", 4)).toBe(false);
  expect(exceedsUtf8("ééa", 4)).toBe(true);
  expect(exceedsUtf8("💡", 4)).toBe(false);
});

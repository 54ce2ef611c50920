import { expect, test } from "vitest";
import { trustedUntil } from "./lease-trust.ts";

test("a lease is trusted from when it was asked for, less a margin", () => {
  expect(trustedUntil(1000, 15_000, 500)).toBe(15_500);
});

test("a margin longer than the lease leaves no trust at all", () => {
  expect(trustedUntil(1000, 300, 500)).toBe(1000);
});

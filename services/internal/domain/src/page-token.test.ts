import fc from "fast-check";
import { expect, test } from "vitest";
import { readPageToken, writePageToken } from "./page-token.ts";

test("parts come back from a token that is safe in a URL", () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: "grapheme" })), (parts) => {
      const token = writePageToken(parts);

      expect(token).toMatch(/^[A-Za-z0-9_-]+$/);
      expect(readPageToken(token, "page_token", ...parts.map(() => "text" as const))).toEqual(parts);
    }),
  );
});

test("no token is the first page", () => {
  expect(readPageToken("", "page_token", "text", "int")).toBeUndefined();
});

test("a token of another list, cut or made up is refused with its field", () => {
  const token = writePageToken(["2026-01-01", "7"]);
  const refusal = expect.objectContaining({
    reason: "INVALID_FIELD",
    violations: [expect.objectContaining({ field: "page_token" })],
  });

  expect(() => readPageToken(token, "page_token", "text", "int", "id")).toThrow(refusal);
  for (const wrong of [
    token.slice(1),
    token.slice(0, -1),
    `${token}A`,
    "x",
    "*",
    "é",
    btoa("1811c9dc5"),
    "A".repeat(20_000),
  ]) {
    expect(() => readPageToken(wrong, "page_token", "text", "int")).toThrow(refusal);
  }
});

test("a part that is none of its list's is refused, be it no number, negative or too large for its column", () => {
  const refusal = expect.objectContaining({ reason: "INVALID_FIELD" });

  expect(readPageToken(writePageToken(["9223372036854775807"]), "page_token", "id")).toEqual(["9223372036854775807"]);
  expect(readPageToken(writePageToken(["2147483647"]), "page_token", "int")).toEqual(["2147483647"]);
  for (const part of ["x", "", "-1", "1.5", "0x10", " 1", "9223372036854775808"]) {
    expect(() => readPageToken(writePageToken([part]), "page_token", "id")).toThrow(refusal);
  }
  expect(() => readPageToken(writePageToken(["2147483648"]), "page_token", "int")).toThrow(refusal);
});

test("any change of one character is noticed or changes nothing", () => {
  const token = writePageToken(["2026-01-01", "7"]);
  fc.assert(
    fc.property(fc.nat(token.length - 1), fc.constantFrom(..."AZaz09-_"), (place, character) => {
      const changed = token.slice(0, place) + character + token.slice(place + 1);
      let parts: unknown;
      try {
        parts = readPageToken(changed, "page_token", "text", "int");
      } catch (error) {
        expect(error).toMatchObject({ reason: "INVALID_FIELD" });
        return;
      }
      expect(parts).toEqual(["2026-01-01", "7"]);
    }),
  );
});

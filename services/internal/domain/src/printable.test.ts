import fc from "fast-check";
import { expect, test } from "vitest";
import { printable } from "./printable.ts";

test("plain text stays, line feeds and tabs included", () => {
  expect(printable("Zażółć\n\tgęślą 💡")).toBe("Zażółć\n\tgęślą 💡");
});

test("what no terminal should see is escaped", () => {
  expect(printable("a\0\u001b[31m\u202e\ud800")).toBe("a\\u0000\\u001b[31m\\u202e\\ud800");
});

test("bytes that are not UTF-8 are shown, and those around them read", () => {
  expect(printable(Uint8Array.of(0xc3, 0xa9, 0xff, 0x41, 0xc3, 0xf0, 0x9f, 0x92, 0xa1, 0xe2, 0x82))).toBe(
    "é\\xffA\\xc3💡\\xe2\\x82",
  );
});

test("what is too long is cut at a character, with a mark", () => {
  expect(printable("ééééé", 8)).toBe("éé…");
  expect(printable("éééé", 8)).toBe("éééé");
  expect(printable("💡".repeat(5000))).toMatch(/^(?:💡)+…$/u);
});

test("any bytes become text within the limit that holds nothing unprintable", () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.uint8Array({ maxLength: 60 }), fc.string({ unit: "binary" })),
      fc.integer({ min: 3, max: 80 }),
      (value, limit) => {
        const text = printable(value, limit);

        expect(new TextEncoder().encode(text).length).toBeLessThanOrEqual(limit);
        expect(text.isWellFormed()).toBe(true);
        expect(text).not.toMatch(/[\0-\x08\x0b-\x1f\x7f-\x9f]/);
      },
    ),
    { numRuns: 500 },
  );
});

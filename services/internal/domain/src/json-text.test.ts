import fc from "fast-check";
import { expect, test } from "vitest";
import { canonicalJson, checkJson, isJsonNumber, type JsonNode, parseLossless, writeLossless } from "./json-text.ts";

const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);

test.each(["9007199254740993", "1e400", "-0", "1.0", "-1E+2", "0.1000", "123456789012345678901234567890"])(
  "%s comes back digit for digit",
  (digits) => {
    const text = `{"a":[${digits}],"b":${digits}}`;

    expect(writeLossless(parseLossless(text))).toBe(text);
    expect(isJsonNumber(parseLossless(digits))).toBe(true);
  },
);

test("an object that looks like a kept number is no number", () => {
  expect(isJsonNumber(parseLossless('{"rawJSON":"1"}'))).toBe(false);
  expect(writeLossless(parseLossless('{"rawJSON":"1"}'))).toBe('{"rawJSON":"1"}');
});

test("a key __proto__ is plain data", () => {
  const text = '{"__proto__":{"polluted":1.0},"constructor":{"prototype":{"polluted":2}}}';

  const node = parseLossless(text) as Record<string, JsonNode>;

  expect(Object.getPrototypeOf(node)).toBe(Object.prototype);
  expect(Object.keys(node)).toEqual(["__proto__", "constructor"]);
  expect("polluted" in {}).toBe(false);
  expect(writeLossless(node)).toBe(text);
});

test("a hundred deep is accepted and one more is refused with the field", () => {
  expect(() => checkJson(nested(100), "input")).not.toThrow();
  expect(() => checkJson(nested(101), "input")).toThrow(
    expect.objectContaining({
      reason: "INVALID_PAYLOAD",
      violations: [{ field: "input", reason: "INVALID_PAYLOAD", description: "must be nested at most 100 deep" }],
    }),
  );
});

test("a million deep overflows no stack", () => {
  expect(() => checkJson(nested(1_000_000), "input")).toThrow("at most 100 deep");
  expect(() => checkJson('{"a":'.repeat(1_000_000), "input")).toThrow("at most 100 deep");
});

test("brackets inside strings do not count as depth", () => {
  expect(() => checkJson(JSON.stringify(`\\"${"[".repeat(500)}\\`), "input")).not.toThrow();
});

test.each(["", " ", "{", "nul", "01", "1.", "'a'", '"\u0000"', '{"a":1,}', "NaN", '"open', "\u00a01"])(
  "%j is refused as no JSON, without repeating it",
  (text) => {
    expect(() => checkJson(text, "output")).toThrow("output: must be valid JSON");
  },
);

test("any JSON survives the lossless round trip", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const text = JSON.stringify(value);

      expect(writeLossless(parseLossless(text))).toBe(text);
    }),
  );
});

test("canonical text does not depend on order, white space or escapes", () => {
  expect(canonicalJson(' { "b" : [ 1 , "\\u00e9\\/" ] , "a" : null } ')).toBe('{"a":null,"b":[1,"é/"]}');
  expect(canonicalJson('{"a":1,"a":2}')).toBe('{"a":2}');
});

test.each([
  ["1.0", "1"],
  ["10e-1", "1"],
  ["1500", "15e2"],
  ["0.0", "0"],
  ["-0", "-0"],
  ["9007199254740993", "9007199254740993"],
  ["1E400", "1e400"],
  ["1e99999999999999999999", "1e99999999999999999999"],
])("the canonical form of %s is %s", (text, canonical) => {
  expect(canonicalJson(text)).toBe(canonical);
});

test("the canonical form means the same and is its own canonical form", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const canonical = canonicalJson(JSON.stringify(value));

      expect(JSON.parse(canonical)).toEqual(JSON.parse(JSON.stringify(value)));
      expect(canonicalJson(canonical)).toBe(canonical);
    }),
  );
});

test("numbers have one canonical form exactly where their decimal values are equal", () => {
  const decimal = fc.tuple(fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }), fc.integer({ min: -40, max: 40 }));
  fc.assert(
    fc.property(decimal, fc.nat({ max: 20 }), ([digits, power], zeros) => {
      fc.pre(digits !== 0n);
      const same = `${digits}${"0".repeat(zeros)}e${power - zeros}`;

      expect(canonicalJson(same)).toBe(canonicalJson(`${digits}e${power}`));
      expect(canonicalJson(`${digits + 1n}e${power}`)).not.toBe(canonicalJson(same));
    }),
  );
});

test("a long number takes no long time", () => {
  const started = performance.now();

  canonicalJson(`1${"0".repeat(200_000)}1`);

  expect(performance.now() - started).toBeLessThan(1000);
});

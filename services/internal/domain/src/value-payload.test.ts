import fc from "fast-check";
import { expect, test } from "vitest";
import { valueToJson } from "./value-payload.ts";

const refusal = (field: string) =>
  expect.objectContaining({ reason: "INVALID_PAYLOAD", violations: [expect.objectContaining({ field })] });

test("any JSON value is written as JSON", () => {
  const anyValue = fc.jsonValue().filter((value) => !/\d{16}|e\+/.test(JSON.stringify(value)));
  fc.assert(
    fc.property(anyValue, (value) => {
      expect(JSON.parse(valueToJson(value, "input"))).toEqual(value);
    }),
  );
});

test.each([2 ** 53, 2 ** 53 + 2, -(2 ** 53), 1e300])(
  "%d may have lost digits and is refused with its path",
  (number) => {
    expect(() => valueToJson({ items: [{ "a b": number }] }, "input")).toThrow(refusal('input.items[0]["a b"]'));
  },
);

test("the largest exact numbers and minus zero are written as they are", () => {
  expect(valueToJson([2 ** 53 - 1, -(2 ** 53 - 1), -0, 0.1], "input")).toBe(
    "[9007199254740991,-9007199254740991,-0,0.1]",
  );
});

test.each([Number.NaN, Number.POSITIVE_INFINITY, undefined, 1n])("%s is no JSON value", (value) => {
  expect(() => valueToJson([value], "input")).toThrow(refusal("input[0]"));
});

test("nesting over a hundred is refused, at any depth", () => {
  const nest = (depth: number) => Array.from({ length: depth }).reduce<unknown>((inner) => [inner], 1);

  expect(valueToJson(nest(100), "input")).toBe(`${"[".repeat(100)}1${"]".repeat(100)}`);
  expect(() => valueToJson(nest(101), "input")).toThrow("at most 100 deep");
  expect(() => valueToJson(nest(100_000), "input")).toThrow("at most 100 deep");
});

test("NUL, lone surrogates and __proto__ are data", () => {
  const value = JSON.parse('{"__proto__":{"a":"\\u0000\\ud800"}}');

  expect(valueToJson(value, "input")).toBe('{"__proto__":{"a":"\\u0000\\ud800"}}');
});

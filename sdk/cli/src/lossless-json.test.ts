import { expect, test } from "vitest";
import { isObject, parseLossless } from "./lossless-json.ts";

test.each(["9007199254740993", "1e400", "-0", "1.0", '{"a":[0.1000]}', '"9"', "null"])(
  "%s is written as it was read",
  (text) => {
    expect(JSON.stringify(parseLossless(text))).toBe(text);
  },
);

test("a number is no object, though it is kept in one", () => {
  expect(isObject(parseLossless("7"))).toBe(false);
  expect(isObject(parseLossless("[]"))).toBe(false);
  expect(isObject(parseLossless("{}"))).toBe(true);
});

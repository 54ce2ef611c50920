import { expect, test } from "vitest";
import { resolveConcurrencyKey } from "./concurrency-key.ts";

const customer = '{"$ref":"#/input/customer"}';

test.each(["customer", "{not json", '{"customer":7}', '"$ref"'])("%s is the key as it is", (key) => {
  expect(resolveConcurrencyKey(key, "{}")).toEqual({ ok: true, key });
});

test("text from the input is the key, and another value its canonical JSON", () => {
  expect(resolveConcurrencyKey(customer, '{"customer":"c7"}')).toEqual({ ok: true, key: "c7" });
  expect(resolveConcurrencyKey(customer, '{"customer":7.0}')).toEqual({ ok: true, key: "7" });
  expect(resolveConcurrencyKey(`["eu",${customer}]`, '{"customer":"c7"}')).toEqual({ ok: true, key: '["eu","c7"]' });
});

test("a key that is missing, empty or too long is refused", () => {
  const missing = { ok: false, why: "the concurrency key's #/input/customer is not in the input" };
  const wrongSize = { ok: false, why: "the concurrency key must be 1 to 1024 bytes" };

  expect(resolveConcurrencyKey(customer, undefined)).toEqual(missing);
  expect(resolveConcurrencyKey(customer, '{"customer":""}')).toEqual(wrongSize);
  expect(resolveConcurrencyKey(customer, JSON.stringify({ customer: "c".repeat(1025) }))).toEqual(wrongSize);
  expect(resolveConcurrencyKey(customer, '{"customer":"a\\u0000"}')).toEqual({
    ok: false,
    why: "the concurrency key must not hold NUL",
  });
});

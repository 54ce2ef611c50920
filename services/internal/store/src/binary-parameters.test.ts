import { expect, test } from "vitest";
import { textArray, uuidArray } from "./binary-parameters.ts";

test("texts go as UTF-8 with their lengths in bytes, and undefined as NULL", () => {
  const buffer = textArray(["a", undefined, "äß𝄞", ""]);

  expect(buffer.toString("hex")).toBe(
    ["00000001 00000001 00000019 00000004 00000001", "00000001 61", "ffffffff", "00000008 c3a4c39ff09d849e", "00000000"]
      .join("")
      .replaceAll(" ", ""),
  );
});

test("an array without elements has no dimension", () => {
  expect(textArray([]).toString("hex")).toBe("000000000000000000000019");
  expect(uuidArray([]).toString("hex")).toBe("000000000000000000000b86");
});

test("a UUID goes as its 16 bytes, and what is none is refused", () => {
  const buffer = uuidArray(["123e4567-e89b-12d3-a456-426614174000"]);

  expect(buffer.subarray(20).toString("hex")).toBe("00000010123e4567e89b12d3a456426614174000");
  expect(() => uuidArray(["123e4567"])).toThrow(RangeError);
});

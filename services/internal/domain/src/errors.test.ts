import { Reason as ContractReason } from "@runmesh/contracts/error/v1/error_pb";
import { expect, test } from "vitest";
import { invalidField, REASONS } from "./errors.ts";

test("reasons are those of the contracts", () => {
  const names = Object.keys(ContractReason).filter((name) => Number.isNaN(Number(name)) && name !== "UNSPECIFIED");

  expect(Object.keys(REASONS).sort()).toEqual(names.sort());
});

test("an error about a field names it once for people and once for programs", () => {
  const error = invalidField("definition.name", "must be given");

  expect(error.message).toBe("definition.name: must be given");
  expect(error.advice).toBe("Correct the field that the violation names.");
  expect(error.violations).toEqual([
    { field: "definition.name", reason: "INVALID_FIELD", description: "must be given" },
  ]);
});

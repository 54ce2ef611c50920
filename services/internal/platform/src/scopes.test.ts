import { expect, test } from "vitest";
import { ROLE_TABLE } from "./authorization.ts";
import { coversMethod, isReading, isWithin, nounOf, readScopes, SCOPE_NOUNS } from "./scopes.ts";

test("every method of the role table belongs to a noun that a scope can name", () => {
  for (const method of Object.keys(ROLE_TABLE)) expect(SCOPE_NOUNS, method).toContain(nounOf(method));
});

test("a scope lets its service through, a reading one only what reads", () => {
  const get = "runmesh.run.v1.RunService/GetRun";
  const start = "runmesh.run.v1.RunService/StartRun";
  const other = "runmesh.task.v1.TaskService/GetTask";

  expect([get, start, other].map((method) => coversMethod(["run"], method))).toEqual([true, true, false]);
  expect([get, start, other].map((method) => coversMethod(["run:read"], method))).toEqual([true, false, false]);
  expect([get, start, other].map((method) => coversMethod([], method))).toEqual([true, true, true]);
  expect(coversMethod(["run"], "runmesh.tenant.v1.TenantService/GetPrincipal")).toBe(true);
});

test("what reads is told by the method's name", () => {
  const reading = Object.keys(ROLE_TABLE).filter(isReading);

  expect(reading).toContain("runmesh.run.v1.RunService/WatchRun");
  expect(reading.some((method) => /Start|Cancel|Put|Create|Acquire|Attach/.test(method))).toBe(false);
});

test("scopes are kept once and in order, and an unknown one is named by its place", () => {
  expect(readScopes(["task:read", "run", "run"], "scopes")).toEqual(["run", "task:read"]);
  expect(() => readScopes(["run", "run:write"], "scopes")).toThrow("scopes[1]");
});

test("scopes lie within others that let through all of what they do, and none lies within any but none", () => {
  expect(isWithin([], [])).toBe(true);
  expect(isWithin(["run"], [])).toBe(true);
  expect(isWithin([], ["tenant"])).toBe(false);
  expect(isWithin(["run:read", "tenant"], ["run", "tenant"])).toBe(true);
  expect(isWithin(["run"], ["run:read"])).toBe(false);
  expect(isWithin(["run", "task"], ["run"])).toBe(false);
});

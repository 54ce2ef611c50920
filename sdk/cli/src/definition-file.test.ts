import { expect, test } from "vitest";
import { readDefinition } from "./definition-file.ts";

const decode = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes);

test("numbers in params and output arrive digit for digit", () => {
  const definition = readDefinition(
    `{"name": "n", "tasks": [{"key": "a", "handler": "h", "params": {"big": 9007199254740993, "huge": 1e400, "one": 1.0}}],
      "output": [9007199254740993]}`,
    "file",
  );

  const { paramsPayload } = definition.tasks[0]!;
  expect(paramsPayload.case).toBe("paramsJson");
  expect(decode(paramsPayload.value as Uint8Array)).toBe('{"big":9007199254740993,"huge":1e400,"one":1.0}');
  expect(definition.outputPayload.case).toBe("outputJson");
  expect(decode(definition.outputPayload.value as Uint8Array)).toBe("[9007199254740993]");
});

test("fields are taken in snake_case and in camelCase", () => {
  const definition = readDefinition(
    `{"name": "n", "max_parallel": 3, "onFailure": "ON_FAILURE_FINISH", "tasks": [
      {"key": "a", "handler": "h", "retry": {"max_attempts": 5}},
      {"key": "b", "handler": "h", "dependsOn": ["a"], "allow_failure": true, "retry": {"maxAttempts": 7}}]}`,
    "file",
  );

  expect(definition.maxParallel).toBe(3);
  expect(definition.onFailure).toBe(2);
  expect(definition.tasks.map((task) => task.retry?.maxAttempts)).toEqual([5, 7]);
  expect(definition.tasks[1]).toMatchObject({ dependsOn: ["a"], allowFailure: true });
});

test("a key __proto__ in params is data", () => {
  const definition = readDefinition(
    '{"name":"n","tasks":[{"key":"a","handler":"h","params":{"__proto__":{"x":1}}}]}',
    "file",
  );

  expect(decode(definition.tasks[0]!.paramsPayload.value as Uint8Array)).toBe('{"__proto__":{"x":1}}');
});

test("params that are null are null, and params that are absent are absent", () => {
  const definition = readDefinition(
    '{"name":"n","tasks":[{"key":"a","handler":"h","params":null},{"key":"b","handler":"h"}]}',
    "file",
  );

  expect(decode(definition.tasks[0]!.paramsPayload.value as Uint8Array)).toBe("null");
  expect(definition.tasks[1]!.paramsPayload.case).toBeUndefined();
});

test.each([
  ["no JSON", "{", "file is not JSON"],
  ["a list", "[]", "file must hold one JSON object"],
  ["tasks that are no list", '{"tasks": 1}', "file: tasks must be a list"],
  ["a task that is no object", '{"tasks": [{"key":"a"}, 7]}', "file: tasks[1] must be an object"],
  ["an unknown field", '{"tasks": [{"key":"a","handlr":"h"}]}', "file: tasks[0]: "],
  ["a field of a wrong kind", '{"name": 7}', "file: "],
  ["two forms of params", '{"tasks":[{"params":1,"params_json":"MQ=="}]}', "file: tasks[0] has both"],
  ["endless nesting", `{"tasks":[{"params":${"[".repeat(100_000)}`, "file is not JSON"],
])("%s is wrong usage that names the place", (_what, text, message) => {
  expect(() => readDefinition(text, "file")).toThrow(message);
});

import {
  GetRunRequestSchema,
  ListRunsRequestSchema,
  StartRunRequestSchema,
} from "@runmesh/contracts/run/v1/run_service_pb";
import type { MeshError } from "@runmesh/domain/errors";
import { expect, test } from "vitest";
import { checkJson } from "./json-guard.ts";

const utf8 = (text: string) => new TextEncoder().encode(text);

/** Reason and path of what is wrong, or undefined when nothing is. */
function faultOf(json: string | Uint8Array): string | undefined {
  try {
    checkJson(StartRunRequestSchema, typeof json === "string" ? utf8(json) : json);
    return undefined;
  } catch (error) {
    const { reason, violations } = error as MeshError;
    expect(violations).toHaveLength(1);
    expect(violations[0]!.reason).toBe(reason);
    return `${reason} ${violations[0]!.field}`;
  }
}

const nested = (depth: number) => `{"input":${"[".repeat(depth - 1)}${"]".repeat(depth - 1)}}`;

test("right messages pass: both spellings, any text, lone surrogates and deep payloads", () => {
  for (const json of [
    "{}",
    ' { "workflow" : "order" , "input" : { "id" : 7 } } ',
    '{"idempotency_key":"k","requestId":"r","dueTime":"2026-01-01T00:00:00Z","labels":{"a b":"c"}}',
    '{"input":"\\ud800","workflow":"\\u00e9\\n"}',
    '{"input":{"__proto__":1,"constructor":{"a":[]},"":0}}',
    '{"input":[1e308,-0,0.1,123456789012345678901234567890]}',
    '{"input":null}',
    nested(101),
    nested(250),
  ]) {
    expect(faultOf(json), json.slice(0, 80)).toBeUndefined();
  }
});

test("what is no lossless JSON is INVALID_PAYLOAD with its path", () => {
  const key = "[".repeat(20);
  expect(faultOf(nested(251))).toBe(`INVALID_PAYLOAD input${"[0]".repeat(249)}`);
  expect(faultOf(`{"input":{"a":[1,{"b":1e400}]}}`)).toBe("INVALID_PAYLOAD input.a[1].b");
  expect(faultOf(`{"input":[-1e999]}`)).toBe("INVALID_PAYLOAD input[0]");
  expect(faultOf(`{"input":{"a":1,"b":{"x y":1,"x\\u0020y":2}}}`)).toBe('INVALID_PAYLOAD input.b["x y"]');
  expect(faultOf(`{"input":1,"input":2}`)).toBe("INVALID_PAYLOAD input");
  expect(faultOf(`{"input":${key}`)).toBe(`INVALID_PAYLOAD input${"[0]".repeat(20)}`);
  for (const json of [
    "",
    " ",
    "nul",
    "{",
    "{]",
    "[1,]",
    '{"a":1,}',
    "{'a':1}",
    '"\u0001"',
    "01",
    "1.",
    "+1",
    ".5",
    "NaN",
  ]) {
    expect(faultOf(json), json).toMatch(/^INVALID_PAYLOAD /);
  }
  expect(faultOf("{} {}")).toBe("INVALID_PAYLOAD body");
});

test("bytes that are not UTF-8 are INVALID_PAYLOAD with the path of their value", () => {
  const bytes = (...parts: (string | number)[]) =>
    Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : Buffer.from([part]))));

  expect(faultOf(bytes('{"input":{"a":["é","x', 0xff, '"]}}'))).toBe("INVALID_PAYLOAD input.a[1]");
  expect(faultOf(bytes('{"input":{"a":["', 0xed, 0xa0, 0x80, '"]}}'))).toBe("INVALID_PAYLOAD input.a[0]");
  expect(faultOf(bytes('{"workflow":"�', 0xc3, '"}'))).toBe("INVALID_PAYLOAD workflow");
});

test("an unknown or wrong field is INVALID_FIELD with its path in proto names", () => {
  expect(faultOf('{"workflow":"w","inptu":1}')).toBe("INVALID_FIELD inptu");
  expect(faultOf('{"definition":{"tasks":[{"key":"a"},{"key":"b","dependsOn":["a",7]}]}}')).toBe(
    "INVALID_FIELD definition.tasks[1].depends_on[1]",
  );
  expect(faultOf('{"definition":{"tasks":[{"key":"a","hendler":"x"}]}}')).toBe(
    "INVALID_FIELD definition.tasks[0].hendler",
  );
  expect(faultOf('{"labels":{"a":"b","c d":1}}')).toBe('INVALID_FIELD labels["c d"]');
  expect(faultOf('{"version":-1}')).toBe("INVALID_FIELD version");
  expect(faultOf('{"dueTime":"tomorrow"}')).toBe("INVALID_FIELD due_time");
  expect(faultOf('{"inputJson":"***"}')).toBe("INVALID_FIELD input_json");
  expect(faultOf('{"input":1,"inputJson":"MQ=="}')).toBe("INVALID_FIELD input_json");
  expect(faultOf('{"requestId":"a","request_id":"b"}')).toBe("INVALID_FIELD request_id");
  expect(faultOf("[]")).toBe("INVALID_FIELD body");
  expect(faultOf("null")).toBe("INVALID_FIELD body");
});

test("a wrong name is told with the names that there are", () => {
  const messageOf = (desc: Parameters<typeof checkJson>[0], json: string) => {
    try {
      checkJson(desc, utf8(json));
    } catch (error) {
      return (error as MeshError).message;
    }
  };

  expect(messageOf(GetRunRequestSchema, '{"run": "7"}')).toBe(
    "run: runmesh.run.v1.GetRunRequest has no such field; it has run_id, wait_ms, omit_input",
  );
  expect(messageOf(ListRunsRequestSchema, '{"filter": {"states": ["RUNNING"]}}')).toMatch(
    /^filter\.states\[0\]: must be one of STATE_PENDING, STATE_RUNNING, .*STATE_TIMED_OUT$/,
  );
  expect(messageOf(StartRunRequestSchema, '{"definition": {"tasks": [{"when": "always"}]}}')).toMatch(
    /^definition\.tasks\[0\]\.when: must be one of WHEN_ALL_SUCCEEDED, /,
  );
});

test("megabytes of small values are checked within seconds", () => {
  const json = `{"input":[${Array.from({ length: 200_000 }, (_, i) => `{"id":${i}}`).join(",")}]}`;
  const startedAt = performance.now();

  expect(faultOf(json)).toBeUndefined();

  expect(performance.now() - startedAt).toBeLessThan(5_000);
});

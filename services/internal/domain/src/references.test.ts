import fc from "fast-check";
import { expect, test } from "vitest";
import { collectReferences, compileTemplate, type Lookup, resolveTemplate } from "./references.ts";

const lookup = (input: string | undefined, outputs: Record<string, string> = {}): Lookup => ({
  input: () => input,
  output: (key) => (Object.hasOwn(outputs, key) ? outputs[key] : undefined),
});
const resolve = (params: string | undefined, from: Lookup = lookup(undefined)) =>
  resolveTemplate(compileTemplate(params), from);

test("references are listed with their places, sources and pointers", () => {
  const params = `{"a":[{"$ref":"#/input"}],"b/c":{"$ref":"#/tasks/eu~1pay/output/x/0","default":null}}`;

  expect(collectReferences(params)).toEqual([
    { at: "/a/0", source: "input", pointer: "", hasDefault: false },
    { at: "/b~1c", source: { task: "eu/pay" }, pointer: "/x/0", hasDefault: true },
  ]);
});

test.each([undefined, " [1.0,  -0] ", '{"note":"\\u0024ref"}', '"$ref"'])(
  "%j holds no reference and stays byte for byte",
  (text) => {
    const template = compileTemplate(text);

    expect(template.isConstant).toBe(true);
    expect(resolveTemplate(template, lookup(undefined))).toEqual({ ok: true, text: text ?? "null" });
  },
);

test("a reference whose key is written with escapes is one all the same", () => {
  expect(resolve('{"\\u0024ref":"#/input/id"}', lookup('{"id":7}'))).toEqual({ ok: true, text: "7" });
});

test.each(["9007199254740993", "1e400", "-0", "1.0", '"\\u00e9\\/"', "[ 1 , 2 ]"])(
  "%s is copied as it was written",
  (written) => {
    const from = lookup(` { "id" : ${written} } `, { t: written });

    expect(resolve('{"x":{"$ref":"#/input/id"},"y":1e400}', from)).toEqual({
      ok: true,
      text: `{"x":${written},"y":1e400}`,
    });
    expect(resolve('{"$ref":"#/tasks/t/output"}', from)).toEqual({ ok: true, text: written });
  },
);

test("null that is found is a value, and what is not found takes the default", () => {
  const params = '[{"$ref":"#/input/a","default":1.0},{"$ref":"#/input/b","default":1.0}]';

  expect(resolve(params, lookup('{"a":null}'))).toEqual({ ok: true, text: "[null,1.0]" });
});

test("an absent input is null, and an absent output is missing", () => {
  expect(resolve('{"$ref":"#/input"}')).toEqual({ ok: true, text: "null" });
  expect(resolve('{"a":[{"$ref":"#/tasks/t/output"}]}')).toEqual({
    ok: false,
    path: "/a/0",
    reference: "#/tasks/t/output",
    why: "missing",
  });
});

test.each([
  "/list/2",
  "/list/-",
  "/list/01",
  "/list/length",
  "/text/0",
  "/text/length",
  "/toString",
  "/__proto__",
  "/a",
  "/list/0/x",
])("nothing is found at #/input%s", (pointer) => {
  const from = lookup('{"list":[1,2],"text":"abc"}');
  const one = `{"$ref":"#/input${pointer}"}`;
  const many = `[${Array(20).fill('{"$ref":"#/input"}').join()},${one}]`;

  expect(resolve(one, from)).toMatchObject({ ok: false, why: "missing", reference: `#/input${pointer}` });
  expect(resolve(many, from)).toMatchObject({ ok: false, why: "missing", path: "/20" });
});

test("the last of two members with one key counts, whatever its key looks like", () => {
  const from = lookup('{"__proto__":{"a":1},"k":{"a":1},"k":{"a":2},"a~b":3,"c/d":4,"\\"\\\\":5,"":6}');
  const at = (pointer: string) => resolve(JSON.stringify({ $ref: `#/input${pointer}` }), from);

  expect(at("/k/a")).toEqual({ ok: true, text: "2" });
  expect(at("/__proto__/a")).toEqual({ ok: true, text: "1" });
  expect(at("/a~0b")).toEqual({ ok: true, text: "3" });
  expect(at("/c~1d")).toEqual({ ok: true, text: "4" });
  expect(at('/"\\')).toEqual({ ok: true, text: "5" });
  expect(at("/")).toEqual({ ok: true, text: "6" });
});

test("a literal stands for its content, references in it included", () => {
  const params = '{"a":{"$literal":{"$ref":"#/input","n":1.0}},"b":{"$literal":{"$literal":2}}}';

  expect(collectReferences(params)).toEqual([]);
  expect(resolve(params)).toEqual({ ok: true, text: '{"a":{"$ref":"#/input","n":1.0},"b":{"$literal":2}}' });
});

test.each([
  '{"$ref":7}',
  '{"$ref":"input"}',
  '{"$ref":"#/inputs"}',
  '{"$ref":"#/tasks/t"}',
  '{"$ref":"#/tasks//output"}',
  '{"$ref":"#/tasks/t/outputs"}',
  '{"$ref":"#/tasks/a~2/output"}',
  '{"$ref":"#/input/a~"}',
  '{"$ref":"#/input","other":1}',
  '{"$ref":"#/input","default":{"$ref":"#/input"}}',
  '{"$ref":"#/input","__proto__":1}',
  '{"$literal":1,"other":1}',
])("%s is malformed", (text) => {
  const refused = expect.objectContaining({
    reason: "INVALID_REFERENCE",
    violations: [expect.objectContaining({ field: expect.stringMatching(/^params\.a\[0\]/) })],
  });

  expect(() => compileTemplate(`{"a":[${text}]}`)).toThrow(refused);
  expect(() => collectReferences(`{"a":[${text}]}`)).toThrow(refused);
});

test("params that grow past the limit are refused with the reference that did it", () => {
  const params = `[${Array(10).fill('{"$ref":"#/input"}').join()}]`;

  const resolution = resolve(params, lookup(JSON.stringify("x".repeat(500_000))));

  expect(resolution).toMatchObject({ ok: false, why: "too_large", path: "/8" });
});

const anyKey = fc.oneof(fc.constantFrom("a", "b", "a/b", "~", "", "0", "1", "__proto__", "é\n"), fc.string());
const anyJson = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom(null, true, 0, -1.5, 1e300, "", "text", '"\\'),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.array(fc.tuple(anyKey, tie("value")), { maxLength: 4 }).map(Object.fromEntries),
  ),
})).value;

test("any reference finds what a naive walk finds, searched or parsed", () => {
  fc.assert(
    fc.property(
      anyJson,
      fc.array(anyKey, { maxLength: 3 }),
      fc.constantFrom(1, 20),
      fc.nat(3),
      (input, steps, copies, indent) => {
        const pointer = steps.map((step) => `/${step.replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
        const params = JSON.stringify(Array(copies).fill({ $ref: `#/input${pointer}`, default: "none" }));

        const resolution = resolve(params, lookup(JSON.stringify(input, null, indent)));

        const found = naiveFind(JSON.parse(JSON.stringify(input)), steps);
        expect(resolution.ok && JSON.parse(resolution.text)).toEqual(Array(copies).fill(found));
      },
    ),
    { numRuns: 500 },
  );
});

function naiveFind(value: unknown, steps: readonly string[]): unknown {
  const [step, ...rest] = steps;
  if (step === undefined) return value;
  if (typeof value !== "object" || value === null || (Array.isArray(value) && String(Number(step)) !== step))
    return "none";
  const member = Object.getOwnPropertyDescriptor(value, step);
  return member === undefined ? "none" : naiveFind(member.value, rest);
}

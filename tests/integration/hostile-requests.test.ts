import { type DescField, type DescMessage, type DescMethod, ScalarType } from "@bufbuild/protobuf";
import { createServiceClient, createTransport } from "@runmesh/client/internal";
import { writePageToken } from "@runmesh/domain/page-token";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { expect, test } from "vitest";
import { readMethods } from "./contract-methods.ts";

type Init = Record<string, unknown>;

/** How deep a request is taken apart. Definitions have tests of their own. */
const DEPTH = 3;
const DEFINITION = "runmesh.workflow.v1.Definition";
/** A call that waits for something is given up then. */
const WAIT_MS = 2_000;

/** Texts that no field expects, page tokens of other lists among them. */
const TEXTS = [
  "\0",
  "a\0b",
  "x".repeat(20_000),
  "\u{1F600}".repeat(200),
  "__proto__",
  "%_\\",
  "0",
  ...[["x"], ["9223372036854775807"], ["99999999999999999999"], ["-1"], ["9".repeat(400)], ["1.5"], [" "], [""]].map(
    writePageToken,
  ),
  ...[
    ["x", "y"],
    ["-infinity", "y"],
    ["99999999999999999999", "1"],
    ["1", "99999999999999999999"],
  ].map(writePageToken),
];
const JSON_TEXTS = ["\0", "{", "[1", '"\\ud800"', "1e999", "x".repeat(262_145)];
const SECONDS = [
  -9_000_000_000_000_000n,
  -62_135_596_801n,
  -62_135_596_800n,
  253_402_300_800n,
  9_223_372_036_854_775_807n,
];

/** Values that are of the field's kind and that nothing expects. */
function* hostileValues(field: DescField, depth: number): Generator<unknown> {
  if (field.fieldKind === "list") {
    for (const value of hostileItems(field, depth)) yield [value];
    const [first] = hostileItems(field, depth);
    yield Array.from({ length: 1_001 }, () => first);
  } else if (field.fieldKind === "map") {
    for (const text of TEXTS) yield { [text]: text };
    yield Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`k${i}`, "v"]));
  } else {
    yield* hostileItems(field, depth);
  }
}

function* hostileItems(field: DescField, depth: number): Generator<unknown> {
  if (field.message !== undefined) yield* hostileMessages(field.message, depth);
  else if (field.enum !== undefined) yield* [-1, 99, 100_000, 2_147_483_647];
  else if (field.scalar !== undefined) yield* hostileScalars(field.scalar);
}

const WIDE: ReadonlySet<ScalarType> = new Set([ScalarType.INT64, ScalarType.SINT64, ScalarType.SFIXED64]);

function* hostileScalars(scalar: ScalarType): Generator<unknown> {
  if (scalar === ScalarType.STRING) yield* TEXTS;
  else if (scalar === ScalarType.BYTES) yield* JSON_TEXTS.map((text) => Buffer.from(text));
  else if (scalar === ScalarType.BOOL) yield true;
  else if (scalar === ScalarType.DOUBLE) yield* [Number.NaN, Number.POSITIVE_INFINITY];
  else if (scalar === ScalarType.UINT64) yield* [1n, 2n ** 63n, 2n ** 64n - 1n];
  else if (scalar === ScalarType.UINT32) yield* [1, 32_768, 4_294_967_295];
  else if (WIDE.has(scalar)) yield* [-1n, 1n, 2n ** 43n, 2n ** 63n - 1n, -(2n ** 63n)];
  else yield* [-1, 2_147_483_647];
}

function* hostileMessages(message: DescMessage, depth: number): Generator<Init> {
  if (message.typeName === "google.protobuf.Timestamp") {
    for (const seconds of SECONDS) yield { seconds, nanos: 0 };
    yield { seconds: 0n, nanos: -2_000_000_000 };
    return;
  }
  if (message.typeName.startsWith("google.protobuf.") || message.typeName === DEFINITION || depth === 0) return;
  for (const field of message.fields) {
    for (const value of hostileValues(field, depth - 1)) yield initOf(field, value);
  }
}

/** A member of a oneof is given by its case. */
const initOf = (field: DescField, value: unknown): Init =>
  field.oneof === undefined
    ? { [field.localName]: value }
    : { [field.oneof.localName]: { case: field.localName, value } };

/** What a request needs for its other fields to be looked at. */
async function makeThings(mesh: TestMesh): Promise<Init> {
  const { name: workflow } = await mesh.given.workflow({ name: "theirs" });
  const runId = await mesh.given.run({ tasks: [{}, { dependsOn: ["task-0"] }] });
  const worker = await mesh.worker({ leaseMs: 600_000 });
  const { taskId, fence } = await worker.acquireOne();
  await mesh.schedules.putSchedule({ schedule: { name: workflow, workflow, cron: "0 0 1 1 *", paused: true } });
  return {
    runId,
    taskId,
    fence,
    ...worker.session,
    workflow,
    name: workflow,
    id: "0".repeat(16),
    tenant: "default",
    roles: [1],
    filter: { workflow },
    handlers: ["work"],
    leases: [{ taskId, fence }],
    tasks: [{ taskId, fence }],
    completed: [{ taskId, fence }],
    failed: [{ taskId, fence }],
    runs: [{ workflow }],
    steps: [{ name: "a" }],
    schedule: { name: "made", workflow, cron: "0 0 1 1 *", paused: true },
    start: { workflow },
    from: { seconds: 1_700_000_000n },
    to: { seconds: 1_700_000_001n },
    signal: "go",
    definition: { name: "made", tasks: [{ key: "a", handler: "nobody" }] },
  };
}

function baseOf(method: DescMethod, things: Init): Init {
  const request: Init = {};
  for (const field of method.input.fields) {
    const value = things[field.localName];
    if (value === undefined || field.oneof !== undefined) continue;
    if (field.localName === "definition" && method.name !== "RegisterWorkflow") continue;
    if (field.localName === "runId" && method.input.field.taskId !== undefined && method.name !== "StartChildRun")
      continue;
    const isMessage = isInit(Array.isArray(value) ? value[0] : value);
    if ((field.fieldKind === "list") === Array.isArray(value) && (field.message !== undefined) === isMessage) {
      request[field.localName] = value;
    }
  }
  return request;
}

test("whatever a request holds, its answer is never that the mesh has a fault", { timeout: 240_000 }, async () => {
  await using mesh = await startMesh();
  const things = await makeThings(mesh);
  const transport = createTransport({ url: mesh.url });
  const faults: string[] = [];
  for (const method of await readMethods()) {
    const client = createServiceClient(method.parent, transport, { timeoutMs: 30_000, attempts: 1 });
    const send = (client as unknown as Record<string, Send>)[method.localName]!;
    const base = baseOf(method, things);
    for (const field of method.input.fields) {
      for (const value of hostileValues(field, DEPTH)) {
        const hostile = Object.entries(initOf(field, value)).map(([name, given]) => [
          name,
          mergeInto(base[name], given),
        ]);
        const reason = await call(send, method, { ...base, ...Object.fromEntries(hostile) });
        if (reason === "INTERNAL" || reason.startsWith("?")) faults.push(`${method.name} ${reason} ${show(hostile)}`);
      }
    }
  }
  transport.close();

  expect(faults).toEqual([]);
});

const isInit = (value: unknown): value is Init =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);

/** What is given, with what the base says beside it. */
function mergeInto(base: unknown, given: unknown): unknown {
  if (Array.isArray(base) && Array.isArray(given)) return given.map((item) => mergeInto(base[0], item));
  return isInit(base) && isInit(given) ? { ...base, ...given } : given;
}

type Send = (request: object, options: object) => unknown;

/** What the call is refused with; empty where it is answered, or still waits after a while. */
async function call(send: Send, method: DescMethod, request: object): Promise<string> {
  const leave = new AbortController();
  try {
    const options = { signal: AbortSignal.any([leave.signal, AbortSignal.timeout(WAIT_MS)]) };
    if (method.methodKind === "unary") await send(request, options);
    else for await (const _ of send(request, options) as AsyncIterable<unknown>) break;
    return "";
  } catch (error) {
    return (error as { reason?: string }).reason ?? `? ${String(error)}`;
  } finally {
    leave.abort();
  }
}

const show = (value: unknown) =>
  JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? `${inner}n` : inner)).slice(0, 300);

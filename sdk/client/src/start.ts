import { randomUUID } from "node:crypto";
import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import {
  type RunService,
  type StartRunRequest,
  StartRunRequestSchema,
  type StartRunResponse,
} from "@runmesh/contracts/run/v1/run_service_pb";
import type { AnyWorkflow } from "./define-workflow.ts";
import { MeshError, readErrorDetail } from "./errors.ts";
import type { Registration } from "./registration.ts";
import { validate } from "./schema.ts";
import type { StartGate } from "./start-gate.ts";
import { writeJson } from "./write-json.ts";

export interface StartOptions {
  /** 1 to 1,024 bytes. (workflow, key) gives one run, for as long as the run is kept. */
  readonly idempotencyKey?: string;
  /** At most 16 pairs. */
  readonly labels?: Readonly<Record<string, string>>;
  /** The run is PENDING until then. */
  readonly dueTime?: Date;
}

/** One run of a batch. */
export interface StartItem<I> extends StartOptions {
  readonly input: I;
}

/** Limits of one StartRuns call; the bytes leave room below the 4 MiB of a request. */
const MAX_ITEMS = 1_000;
const MAX_BYTES = 3.5 * 1024 * 1024;

/** Tags and lengths of a request's fields, its numbers and its due time, and of one label. */
const FIELDS_BYTES = 96;
const LABEL_BYTES = 24;

/** A start carries a request id, so that one whose answer was lost can be repeated. */
export function startRequest(input: unknown, options: StartOptions, target: StartTarget): StartRunRequest {
  const { idempotencyKey, labels, dueTime } = options;
  return create(StartRunRequestSchema, {
    ...target,
    ...(input !== undefined && { inputPayload: { case: "inputJson", value: writeJson(input, "input") } }),
    requestId: randomUUID(),
    ...(idempotencyKey !== undefined && { idempotencyKey }),
    ...(labels && { labels: { ...labels } }),
    ...(dueTime && { dueTime: timestampFromDate(dueTime) }),
  });
}

export interface StartTarget {
  readonly workflow: string;
  readonly contentHash?: string;
  readonly version?: number;
}

/** Starts by content, registering it when the server does not know it. */
export async function startRegistered(
  gate: StartGate,
  registration: Registration,
  workflow: AnyWorkflow,
  item: StartItem<unknown>,
): Promise<StartRunResponse> {
  const input = await validate(workflow.input, item.input, "input");
  const { contentHash } = await registration.register(workflow);
  const request = startRequest(input, item, { workflow: workflow.name, contentHash });
  try {
    return await gate.start(request);
  } catch (error) {
    if (!(error instanceof MeshError) || error.reason !== "NOT_FOUND") throw error;
    registration.forget(workflow);
    request.contentHash = (await registration.register(workflow)).contentHash;
    return gate.start(request);
  }
}

/** Starts many, each on its own: one result per item, in order. */
export async function startBatch(
  runs: Client<typeof RunService>,
  registration: Registration,
  workflow: AnyWorkflow,
  items: readonly StartItem<unknown>[],
): Promise<(StartRunResponse | MeshError)[]> {
  const { contentHash } = await registration.register(workflow);
  const results: (StartRunResponse | MeshError)[] = new Array(items.length);
  const valid: Place[] = [];
  for (const [index, item] of items.entries()) {
    try {
      const input = await validate(workflow.input, item.input, `items[${index}].input`);
      valid.push({ index, request: startRequest(input, item, { workflow: workflow.name, contentHash }) });
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      results[index] = error;
    }
  }
  await send(runs, valid, results);
  const unknown = valid.filter(({ index }) => (results[index] as MeshError).reason === "NOT_FOUND");
  if (unknown.length > 0) {
    registration.forget(workflow);
    const again = await registration.register(workflow);
    for (const { request } of unknown) request.contentHash = again.contentHash;
    await send(runs, unknown, results);
  }
  return results;
}

/** Starts what is given: one answer per request, in order. */
export async function startAll(
  runs: Client<typeof RunService>,
  requests: readonly StartRunRequest[],
): Promise<(StartRunResponse | MeshError)[]> {
  const results: (StartRunResponse | MeshError)[] = new Array(requests.length);
  await send(
    runs,
    requests.map((request, index) => ({ index, request })),
    results,
  );
  return results;
}

interface Place {
  readonly index: number;
  readonly request: StartRunRequest;
}

async function send(runs: Client<typeof RunService>, places: Place[], results: (StartRunResponse | MeshError)[]) {
  for (const chunk of chunks(places)) {
    const answer = await runs.startRuns({ runs: chunk.map((place) => place.request) });
    for (const [i, { index }] of chunk.entries()) {
      const result = answer.results[i]?.result;
      if (result?.case === "started") results[index] = result.value;
      else if (result?.case === "error") results[index] = readErrorDetail(result.value);
      else throw new Error(`StartRuns answered nothing for item ${index}`);
    }
  }
}

function* chunks(places: readonly Place[]): Generator<Place[]> {
  let chunk: Place[] = [];
  let bytes = 0;
  for (const place of places) {
    const size = sizeBound(place.request);
    if (chunk.length === MAX_ITEMS || (chunk.length > 0 && bytes + size > MAX_BYTES)) {
      yield chunk;
      chunk = [];
      bytes = 0;
    }
    chunk.push(place);
    bytes += size;
  }
  if (chunk.length > 0) yield chunk;
}

/** At most so many bytes on the wire: to write each request out only for its size would double its cost. */
function sizeBound({
  workflow,
  requestId,
  idempotencyKey,
  contentHash,
  labels,
  inputPayload,
}: StartRunRequest): number {
  let bytes = FIELDS_BYTES + 3 * (workflow.length + requestId.length + idempotencyKey.length + contentHash.length);
  for (const [name, value] of Object.entries(labels)) bytes += LABEL_BYTES + 3 * (name.length + value.length);
  return inputPayload.case === "inputJson" ? bytes + inputPayload.value.length : bytes;
}

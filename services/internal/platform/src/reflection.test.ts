import { create, createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { Health, HealthCheckResponse_ServingStatus as Status } from "@runmesh/contracts/grpc/health/v1/health_pb";
import { ServerReflection } from "@runmesh/contracts/grpc/reflection/v1/reflection_pb";
import { ServerReflection as ServerReflectionAlpha } from "@runmesh/contracts/grpc/reflection/v1alpha/reflection_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createHealthState, healthRoutes } from "./health.ts";
import { silentLog } from "./log.ts";
import { createServer } from "./one-port-server.ts";
import { reflectionRoutes } from "./reflection.ts";
import { errorInterceptor } from "./rpc-errors.ts";

const state = createHealthState();
const server = createServer({
  host: "127.0.0.1",
  port: 0,
  interceptors: [errorInterceptor({ log: silentLog })],
  log: silentLog,
  routes(router) {
    healthRoutes(state)(router);
    reflectionRoutes([RunService, Health])(router);
  },
});
beforeAll(() => server.start());
afterAll(() => server.stop());
const connect = () => createGrpcTransport({ baseUrl: server.address().url });

type Question = { case: string; value: unknown };

/** Answers of one reflection stream, whichever its version. */
async function ask(service: typeof ServerReflection | typeof ServerReflectionAlpha, questions: Question[]) {
  async function* requests() {
    for (const messageRequest of questions) yield { messageRequest } as never;
  }
  const answers = [];
  const client = createClient(service as typeof ServerReflection, connect());
  for await (const answer of client.serverReflectionInfo(requests())) answers.push(answer.messageResponse);
  return answers;
}

test.each([ServerReflection, ServerReflectionAlpha])(
  "%s lists services and gives files that stand by themselves",
  async (service) => {
    const [list, byName] = await ask(service, [
      { case: "listServices", value: "" },
      { case: "fileContainingSymbol", value: "runmesh.run.v1.RunService" },
    ]);

    expect(list?.case === "listServicesResponse" && list.value.service.map(({ name }) => name)).toEqual([
      "runmesh.run.v1.RunService",
      "grpc.health.v1.Health",
      "grpc.reflection.v1.ServerReflection",
      "grpc.reflection.v1alpha.ServerReflection",
    ]);
    if (byName?.case !== "fileDescriptorResponse") throw new Error(`answered ${byName?.case}`);
    const file = byName.value.fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes));
    const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: file.toReversed() }));
    expect(registry.getService("runmesh.run.v1.RunService")?.methods.length).toBe(RunService.methods.length);
    expect(registry.getMessage("google.protobuf.Value")).toBeDefined();
  },
);

test("methods, messages, enums and files are found, each file once a stream, and the rest is NOT_FOUND", async () => {
  const answers = await ask(ServerReflection, [
    { case: "fileByFilename", value: "google/protobuf/struct.proto" },
    { case: "fileContainingSymbol", value: "grpc.health.v1.Health.Check" },
    { case: "fileContainingSymbol", value: "runmesh.error.v1.Reason" },
    { case: "fileByFilename", value: "no/such.proto" },
    { case: "fileContainingSymbol", value: "no.such.Symbol" },
    { case: "allExtensionNumbersOfType", value: "runmesh.run.v1.Run" },
  ]);

  expect(answers.map((answer) => (answer.case === "errorResponse" ? answer.value.errorCode : answer.case))).toEqual([
    "fileDescriptorResponse",
    "fileDescriptorResponse",
    "fileDescriptorResponse",
    Code.NotFound,
    Code.NotFound,
    "allExtensionNumbersResponse",
  ]);
});

test("health is what the state says, unknown services are NOT_FOUND, and a watch tells changes", async () => {
  const client = createClient(Health, connect());
  const abort = new AbortController();
  expect((await client.check({})).status).toBe(Status.NOT_SERVING);
  await expect(client.check({ service: "x" })).rejects.toMatchObject({ code: Code.NotFound });
  const seen: number[] = [];

  const watching = (async () => {
    for await (const { status } of client.watch({ service: "x" }, { signal: abort.signal })) {
      seen.push(status);
      if (status === Status.SERVICE_UNKNOWN) state.set("x", "SERVING");
      if (status === Status.SERVING) state.set("x", "NOT_SERVING");
      if (status === Status.NOT_SERVING) abort.abort();
    }
  })();

  await expect(watching).rejects.toMatchObject({ code: Code.Canceled });
  expect(seen).toEqual([Status.SERVICE_UNKNOWN, Status.SERVING, Status.NOT_SERVING]);
});

import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { ErrorDetailSchema, Reason } from "@runmesh/contracts/error/v1/error_pb";
import { EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State, type RunChangeSchema, type RunSchema } from "@runmesh/contracts/run/v1/run_pb";
import { RunService, type StartRunRequest } from "@runmesh/contracts/run/v1/run_service_pb";
import { type Definition, DefinitionSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";

type Change = MessageInitShape<typeof RunChangeSchema>;

/** A mesh that remembers what it was asked and answers what a test says, on one port for HTTP/1.1 and HTTP/2. */
export interface FakeMesh extends AsyncDisposable {
  readonly url: string;
  readonly definitions: Map<string, Definition>;
  readonly starts: StartRunRequest[];
  readonly registerCount: number;
  readonly watches: bigint[];
  /** What each AwaitRuns answers of its first run, or is refused with; nothing once they are used up. */
  readonly answers: (MessageInitShape<typeof RunSchema> | ConnectError)[];
  readonly headers: Headers[];
  /** Refuses the next calls of StartRun with these. */
  readonly refusals: ConnectError[];
  /** What each WatchRun stream says before it ends: one entry a stream. */
  readonly streams: Change[][];
}

export function refusal(reason: Reason, code: Code, more: object = {}): ConnectError {
  return new ConnectError("refused", code, undefined, [
    { desc: ErrorDetailSchema, value: create(ErrorDetailSchema, { reason, requestId: "r-1", advice: "Do.", ...more }) },
  ]);
}

export async function startFakeMesh(): Promise<FakeMesh> {
  const definitions = new Map<string, Definition>();
  const starts: StartRunRequest[] = [];
  const watches: bigint[] = [];
  const answers: (MessageInitShape<typeof RunSchema> | ConnectError)[] = [];
  const headers: Headers[] = [];
  const refusals: ConnectError[] = [];
  const streams: Change[][] = [];
  let registerCount = 0;

  function start(request: StartRunRequest) {
    if (request.contentHash !== "" && !definitions.has(request.contentHash)) {
      throw refusal(Reason.NOT_FOUND, Code.NotFound);
    }
    const earlier = starts.findIndex((s) => s.requestId === request.requestId);
    if (earlier < 0) starts.push(request);
    const place = earlier < 0 ? starts.length : earlier + 1;
    return { runId: BigInt(place), created: earlier < 0, workflowVersion: 1 };
  }

  const routes = (router: ConnectRouter) => {
    router.service(WorkflowService, {
      registerWorkflow({ definition }) {
        registerCount++;
        const contentHash = createHash("sha256").update(toBinary(DefinitionSchema, definition!)).digest("hex");
        definitions.set(contentHash, definition!);
        return { version: { workflow: definition!.name, version: 1, contentHash }, created: true };
      },
    });
    router.service(RunService, {
      startRun(request, context) {
        headers.push(context.requestHeader);
        const refused = refusals.shift();
        if (refused) throw refused;
        return start(request);
      },
      startRuns: ({ runs }) => ({
        results: runs.map((run) => {
          try {
            return { result: { case: "started" as const, value: start(run) } };
          } catch (error) {
            const value = ConnectError.from(error).findDetails(ErrorDetailSchema)[0]!;
            return { result: { case: "error" as const, value } };
          }
        }),
      }),
      getRun: ({ runId }) => ({ run: { id: runId, state: Run_State.RUNNING, sequence: 1n } }),
      awaitRuns({ runIds }) {
        const answer = answers.shift();
        if (answer instanceof ConnectError) throw answer;
        return answer === undefined || answer.state === Run_State.RUNNING
          ? {}
          : { runs: [{ id: runIds[0]!, ...answer }] };
      },
      listEvents: ({ runId, afterSequence }) => ({
        events: afterSequence === 0n ? [{ runId, sequence: 1n, type: EventType.RUN_CREATED }] : [],
      }),
      cancelRun: ({ runId }) => ({ run: { id: runId, state: Run_State.CANCELLED } }),
      async *watchRun({ afterSequence }) {
        watches.push(afterSequence);
        for (const change of streams.shift() ?? []) yield { change };
      },
    });
  };

  const port = await listen(routes);
  return {
    url: port.url,
    definitions,
    starts,
    watches,
    answers,
    headers,
    refusals,
    streams,
    get registerCount() {
      return registerCount;
    },
    [Symbol.asyncDispose]: port.close,
  };
}

/** Serves HTTP/1.1 and HTTP/2 in plain text on one port, as the mesh does. */
async function listen(routes: (router: ConnectRouter) => void) {
  const handler = connectNodeAdapter({ routes });
  const http1 = createHttpServer(handler);
  const http2 = createHttp2Server(handler);
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    socket.once("readable", () => {
      const first: Buffer | null = socket.read();
      if (first === null) return;
      socket.unshift(first);
      (first.toString("latin1", 0, 3) === "PRI" ? http2 : http1).emit("connection", socket);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

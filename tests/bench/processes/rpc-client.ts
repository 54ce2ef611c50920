/** Makes unary calls through our own transport and through the library's. */
import { Agent } from "node:http";
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { createTransport } from "@runmesh/client/internal";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { serveCalls } from "../serve-calls.ts";
import { percentile } from "../statistics.ts";

export interface RpcLoad {
  readonly url: string;
  readonly way: "own" | "library";
  readonly calls: number;
  readonly inFlight: number;
}

export interface RpcTimes {
  readonly p50Micros: number;
  readonly p99Micros: number;
  readonly wallMicros: number;
  readonly cpuMicros: number;
}

const TIMEOUT_MS = 30_000;
const transports = new Map<string, Transport>();

function open(url: string, way: RpcLoad["way"]): Transport {
  if (way === "own") return createTransport({ url, apiKey: "bench" });
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  return createConnectTransport({ baseUrl: url, httpVersion: "1.1", nodeOptions: { agent }, acceptCompression: [] });
}

serveCalls({
  async measure({ url, way, calls, inFlight }: RpcLoad): Promise<RpcTimes> {
    const key = `${way} ${url}`;
    const transport = transports.get(key) ?? open(url, way);
    transports.set(key, transport);
    const client = createClient(RunService, transport);
    const times: number[] = [];
    const cpuBefore = process.cpuUsage();
    const startedAt = performance.now();
    let next = 0;
    const work = async () => {
      while (next < calls) {
        const runId = BigInt(next++);
        const sentAt = performance.now();
        await client.getRun({ runId }, { timeoutMs: TIMEOUT_MS });
        times.push((performance.now() - sentAt) * 1_000);
      }
    };
    await Promise.all(Array.from({ length: inFlight }, work));
    const wallMicros = ((performance.now() - startedAt) * 1_000) / calls;
    const { user, system } = process.cpuUsage(cpuBefore);
    return {
      p50Micros: percentile(times, 50),
      p99Micros: percentile(times, 99),
      wallMicros,
      cpuMicros: (user + system) / calls,
    };
  },
});

import { startChild } from "./child.ts";
import type { RpcLoad, RpcTimes } from "./processes/rpc-client.ts";
import { median, rounded } from "./statistics.ts";
import { section } from "./table.ts";

/** Of one call, in microseconds, and of many at once. */
export interface RpcFigures {
  readonly p50Micros: number;
  readonly p99Micros: number;
  readonly clientCpuMicros: number;
  readonly serverCpuMicros: number;
  readonly callsPerSecond: number;
}

export type RpcReport = Record<string, RpcFigures>;

const WAYS = ["library", "own"] as const;
const WARM_UP = 2_000;
const CALLS = 3_000;
const AT_ONCE = 32;

/** A unary call without work behind it: through our server and transport and through the library's, each with each. */
export async function measureRpc(repetitions: number): Promise<RpcReport> {
  const [server, client] = await Promise.all([
    startChild("processes/rpc-server.ts"),
    startChild("processes/rpc-client.ts"),
  ]);
  try {
    const urls = await server.call<Record<RpcLoad["way"], string>>("start");
    const all: Record<string, RpcFigures[]> = {};
    for (let repetition = 0; repetition <= repetitions; repetition++) {
      for (const of of WAYS) {
        for (const way of WAYS) {
          const calls = repetition === 0 ? WARM_UP : CALLS;
          const measure = (inFlight: number) =>
            client.call<RpcTimes>("measure", { url: urls[of], way, calls, inFlight });
          const before = await server.call<number>("cpuMicros");
          const one = await measure(1);
          const serverCpuMicros = ((await server.call<number>("cpuMicros")) - before) / calls;
          const many = await measure(AT_ONCE);
          if (repetition === 0) continue;
          const { p50Micros, p99Micros, cpuMicros: clientCpuMicros } = one;
          const callsPerSecond = 1e6 / many.wallMicros;
          const figures = { p50Micros, p99Micros, clientCpuMicros, serverCpuMicros, callsPerSecond };
          const name = `server ${of}, client ${way}`;
          all[name] = [...(all[name] ?? []), figures];
        }
      }
    }
    return Object.fromEntries(Object.entries(all).map(([name, figures]) => [name, middleOf(figures)]));
  } finally {
    await Promise.all([client.stop(), server.stop()]);
  }
}

function middleOf(figures: readonly RpcFigures[]): RpcFigures {
  const middle = (read: (of: RpcFigures) => number) => rounded(median(figures.map(read)));
  return {
    p50Micros: middle((of) => of.p50Micros),
    p99Micros: middle((of) => of.p99Micros),
    clientCpuMicros: middle((of) => of.clientCpuMicros),
    serverCpuMicros: middle((of) => of.serverCpuMicros),
    callsPerSecond: middle((of) => of.callsPerSecond),
  };
}

export function describeRpc(report: RpcReport): string[] {
  return section(
    "A unary call without work, one at a time, µs",
    ["who", "p50", "p99", "client CPU", "server CPU", `calls/s, ${AT_ONCE} at once`],
    Object.entries(report).map(([name, of]) => [name, ...Object.values(of).map(String)]),
  );
}

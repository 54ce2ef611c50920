/**
 * `npm run bench:rpc`: what a unary call costs without any work behind it, through our own server and transport and
 * through the library's, each with each.
 */
import { startChild } from "./child.ts";
import type { RpcLoad, RpcTimes } from "./processes/rpc-client.ts";
import { describeCircumstances, readCircumstances } from "./report.ts";
import { median } from "./statistics.ts";
import { section } from "./table.ts";

const WARM_UP = 2_000;
const CALLS = 3_000;
const AT_ONCE = 32;
const REPETITIONS = 3;

const circumstances = readCircumstances();
const [server, client] = await Promise.all([
  startChild("processes/rpc-server.ts"),
  startChild("processes/rpc-client.ts"),
]);
const urls = await server.call<Record<RpcLoad["way"], string>>("start");
const ways = ["library", "own"] as const;
const pairs = ways.flatMap((of) => ways.map((way) => ({ of, way })));
const rounds = new Map<string, { one: RpcTimes; many: RpcTimes; serverMicros: number }[]>();

for (let round = 0; round <= REPETITIONS; round++) {
  for (const { of, way } of pairs) {
    const measure = (inFlight: number) =>
      client.call<RpcTimes>("measure", { url: urls[of], way, calls: round === 0 ? WARM_UP : CALLS, inFlight });
    const before = await server.call<number>("cpuMicros");
    const one = await measure(1);
    const serverMicros = ((await server.call<number>("cpuMicros")) - before) / CALLS;
    const many = await measure(AT_ONCE);
    const name = `server ${of}, client ${way}`;
    if (round > 0) rounds.set(name, [...(rounds.get(name) ?? []), { one, many, serverMicros }]);
  }
}
await Promise.all([client.stop(), server.stop()]);

const rows = [...rounds].map(([name, all]) => {
  const middle = (read: (of: (typeof all)[number]) => number) => String(Math.round(median(all.map(read))));
  return [
    name,
    middle(({ one }) => one.p50Micros),
    middle(({ one }) => one.p99Micros),
    middle(({ one }) => one.cpuMicros),
    middle(({ serverMicros }) => serverMicros),
    middle(({ many }) => 1e6 / many.wallMicros),
  ];
});
const heads = ["who", "p50", "p99", "client CPU", "server CPU", `calls/s, ${AT_ONCE} at once`];
console.log(
  [
    ...describeCircumstances(circumstances),
    ...section("A unary call without work, µs, one at a time", heads, rows),
  ].join("\n"),
);

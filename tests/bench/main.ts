/** `npm run bench -- mesh|degraded|rpc [--json]`: measures, and compares with others in the same run. */
import { parseArgs } from "node:util";
import { DEGRADED_SCENARIOS, describeDegraded, isSound, measureDegraded } from "./degraded.ts";
import { measureMesh, SCENARIOS } from "./mesh.ts";
import { compare, describeCircumstances, describeMesh, readCircumstances } from "./report.ts";
import { describeRpc, measureRpc } from "./rpc.ts";

const USAGE = `Usage: npm run bench -- <what> [--json] [--only <scenario>]… [--repetitions 3]
  mesh [--count 10000] [--alone] [--statements]   beside graphile-worker, DBOS and plain SQL: ${SCENARIOS.join(", ")}
  degraded [--scale 1]             under what wears others down: ${DEGRADED_SCENARIOS.join(", ")}
  rpc                              a unary call without work, through our own ends and through the library's`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "boolean", default: false },
    only: { type: "string", multiple: true },
    repetitions: { type: "string", default: "3" },
    count: { type: "string", default: "10000" },
    scale: { type: "string", default: "1" },
    alone: { type: "boolean", default: false },
    statements: { type: "boolean", default: false },
  },
});

const circumstances = readCircumstances();
const repetitions = Number(values.repetitions);
const say = (line: string) => console.error(line);
const print = (result: object, lines: readonly string[]) =>
  console.log(
    values.json
      ? JSON.stringify({ circumstances, ...result })
      : [...describeCircumstances(circumstances), ...lines].join("\n"),
  );

switch (positionals[0]) {
  case "mesh": {
    const { alone, statements } = values;
    const scenarios = choose(SCENARIOS);
    const report = await measureMesh({ scenarios, repetitions, count: Number(values.count), alone, statements, say });
    print({ ratios: compare(report), ...report }, describeMesh(report));
    break;
  }
  case "degraded": {
    const scenarios = choose(DEGRADED_SCENARIOS);
    const report = await measureDegraded({ scenarios, repetitions, scale: Number(values.scale), say });
    print(report, describeDegraded(report));
    if (!isSound(report)) process.exitCode = 1;
    break;
  }
  case "rpc": {
    const report = await measureRpc(repetitions);
    print({ rpc: report }, describeRpc(report));
    break;
  }
  default:
    console.error(USAGE);
    process.exitCode = 2;
}

function choose<T extends string>(all: readonly T[]): readonly T[] {
  const wanted = values.only ?? all;
  for (const name of wanted) if (!all.includes(name as T)) throw new Error(`no scenario ${name}: ${all.join(", ")}`);
  return wanted as readonly T[];
}

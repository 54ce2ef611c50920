/** `npm run bench -- mesh [--json]`: measures, and compares with others in the same run. */
import { parseArgs } from "node:util";
import { measureMesh, SCENARIOS, type Scenario } from "./mesh.ts";
import { compare, describeCircumstances, describeMesh, readCircumstances } from "./report.ts";

const USAGE = `npm run bench -- mesh [--json] [--only ${SCENARIOS.join("|")}] [--repetitions 3] [--count 10000] [--alone]`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "boolean", default: false },
    only: { type: "string", multiple: true, default: [...SCENARIOS] },
    repetitions: { type: "string", default: "3" },
    count: { type: "string", default: "10000" },
    alone: { type: "boolean", default: false },
  },
});

const circumstances = readCircumstances();
if (positionals[0] === "mesh" && values.only.every((name) => SCENARIOS.includes(name as Scenario))) {
  const report = await measureMesh({
    scenarios: values.only as Scenario[],
    repetitions: Number(values.repetitions),
    count: Number(values.count),
    alone: values.alone,
    say: (line) => console.error(line),
  });
  const result = { circumstances, ratios: compare(report), ...report };
  const lines = [...describeCircumstances(circumstances), ...describeMesh(report)];
  console.log(values.json ? JSON.stringify(result) : lines.join("\n"));
} else {
  console.error(USAGE);
  process.exitCode = 2;
}

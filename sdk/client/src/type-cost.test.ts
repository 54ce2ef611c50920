import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const TASKS = 300;

function writeWorkflow(): string {
  const object = "z.object({ a: z.string(), n: z.number(), list: z.array(z.object({ x: z.number() })) })";
  const lines = [
    'import { z } from "zod";',
    'import { defineTask, defineWorkflow } from "@runmesh/client";',
    ...Array.from(
      { length: TASKS },
      (_, i) => `const t${i} = defineTask({ name: "t${i}", input: ${object}, output: ${object} });`,
    ),
    `defineWorkflow({ name: "w", input: ${object}, build(w) {`,
  ];
  for (let i = 0; i < TASKS; i++) {
    const from = i === 0 ? "w.input" : `n${i - 1}.output`;
    lines.push(`const n${i} = w.task("n${i}", t${i}, { a: ${from}.a, n: ${from}.n, list: ${from}.list });`);
  }
  return [...lines, `return { a: n${TASKS - 1}.output.a }; } });`].join("\n");
}

/** Counted in instantiations, which are the same on every machine; 520,000 take about a second on an idle core. */
test(`a workflow of ${TASKS} typed tasks is checked in under 800,000 instantiations`, async () => {
  const cache = join(root, "node_modules/.cache");
  await mkdir(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, "type-cost-"));
  try {
    await writeFile(join(folder, "big.ts"), writeWorkflow());
    await writeFile(
      join(folder, "tsconfig.json"),
      JSON.stringify({ extends: join(root, "tsconfig.base.json"), files: ["big.ts"] }),
    );
    const tsc = join(root, "node_modules/typescript/bin/tsc");

    const { stdout } = await promisify(execFile)(process.execPath, [tsc, "-p", folder, "--extendedDiagnostics"]);

    expect(Number(/^Instantiations:\s+(\d+)/m.exec(stdout)?.[1])).toBeLessThan(800_000);
  } finally {
    await rm(folder, { recursive: true });
  }
}, 60_000);

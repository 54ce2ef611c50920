import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { afterAll, beforeAll, expect, test } from "vitest";
import { getCodeBlock, readCodeBlocks } from "../markdown.ts";
import { createPackedProject, type PackedProject } from "./packed-project.ts";

const ESM = ["--platform=node", "--format=esm"];
const ANSWER = { n: 20, service: "runmesh.run.v1.RunService", node: "v22.18.0" };

let mesh: TestMesh;
let project: PackedProject;

beforeAll(async () => {
  mesh = await startMesh();
  project = await createPackedProject();
}, 400_000);

afterAll(async () => {
  await project?.[Symbol.asyncDispose]();
  await mesh?.[Symbol.asyncDispose]();
});

/** Each program has a queue of its own, so that no other serves its tasks. */
const run = async (file: string) =>
  JSON.parse(await project.node([file], { RUNMESH_URL: mesh.url, QUEUE: file.replaceAll(/[^a-z]/g, "-") }));

test("JavaScript of an empty project defines, serves, starts and finishes a workflow with the packed packages", async () => {
  expect(await run("program.js")).toEqual(ANSWER);
});

test("TypeScript of an empty project does so as Node runs it directly", async () => {
  expect(await run("program.ts")).toEqual(ANSWER);
});

test("a bundle made by esbuild does so without node_modules", async () => {
  const bundle = join(project.folder, "bundled/program.mjs");
  await project.tool("esbuild", ["program.ts", "--bundle", "--minify", ...ESM, `--outfile=${bundle}`]);

  expect(await run("bundled/program.mjs")).toEqual(ANSWER);
});

test("the check of the author's page takes the program with the packed types, and refuses one that is wired wrong", async () => {
  const page = getCodeBlock(readCodeBlocks("docs/sdk.md"), "npx tsc").text;
  const check = /^npx tsc (.*) order\.ts$/m.exec(page)![1]!.split(" ");
  const source = await readFile(join(project.folder, "program.ts"), "utf8");
  await writeFile(join(project.folder, "wrong.ts"), source.replace("{ n: w.input.n }", '{ n: "5" }'));

  const wrong = project.tool("tsc", [...check, "wrong.ts"]);

  await expect(wrong).rejects.toMatchObject({ stdout: expect.stringContaining("wrong.ts(20") });
  await project.tool("tsc", [...check, "program.ts"]);
});

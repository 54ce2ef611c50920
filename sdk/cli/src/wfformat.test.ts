import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { readWfFormat, validName, withoutTrailingId } from "./wfformat.ts";

const GRAPHS = [
  ["helloworld-chain-5-chameleon", 5, 4],
  ["helloworld-forkjoin-10-chameleon", 10, 16],
  ["montage-chameleon-2mass-005d-001", 58, 114],
  ["rnaseq-dirt02-001", 197, 451],
  ["bwa-chameleon-large-001", 1_004, 4_000],
  ["montage-chameleon-dss-15d-001", 2_122, 6_114],
] as const;

const NAME = /^[A-Za-z0-9._/-]{1,128}$/;

test.each(GRAPHS)("%s becomes %i tasks and %i edges with valid names and known dependencies", (file, tasks, edges) => {
  const workflow = readWfFormat(read(file));

  const keys = new Set(workflow.tasks.map((task) => task.key));
  expect(workflow.tasks.length).toBe(tasks);
  expect(keys.size).toBe(tasks);
  expect(workflow.edgeCount).toBe(edges);
  expect(workflow.name).toMatch(NAME);
  for (const task of workflow.tasks) {
    expect(task.key).toMatch(NAME);
    expect(task.handler).toMatch(NAME);
    expect(task.params.runtimeMs).toBeGreaterThanOrEqual(0);
    expect(task.dependsOn.every((key) => keys.has(key))).toBe(true);
  }
});

test("the measured runtime, the program and the kind of work come with each task", () => {
  const workflow = readWfFormat(read("montage-chameleon-2mass-005d-001"));

  expect(workflow.name).toBe("montage");
  expect(workflow.tasks[1]).toEqual({
    key: "mProject_ID0000002",
    handler: "mProject",
    dependsOn: [],
    params: { runtimeMs: 17_916, program: "mProject" },
  });
  expect(new Set(workflow.tasks.map((task) => task.handler))).toEqual(
    new Set(["mProject", "mDiffFit", "mConcatFit", "mBgModel", "mBackground", "mImgtbl", "mAdd", "mViewer"]),
  );
});

test("a shell script in place of a program gives way to the handler's name", () => {
  const workflow = readWfFormat(read("rnaseq-dirt02-001"));

  expect(workflow.tasks[1]!.params.program).toBe("NFCORE_RNASEQ.RNASEQ.PREPARE_GENOME.GUNZIP_GTF");
});

test("only an id behind a separator is cut off a name", () => {
  expect(withoutTrailingId("bwa_ID000003")).toBe("bwa");
  expect(withoutTrailingId("cpuhog_chain_00000001")).toBe("cpuhog_chain");
  expect(withoutTrailingId("GTF2BED")).toBe("GTF2BED");
  expect(withoutTrailingId("sha256")).toBe("sha256");
});

test("ids that would become one key stay apart", () => {
  const workflow = readWfFormat(minimal([task("a:b"), task("a b", ["a:b"]), task("a-b", ["a b"])]));

  expect(workflow.tasks.map((one) => one.key)).toEqual(["a-b", "a-b-2", "a-b-3"]);
  expect(workflow.tasks.map((one) => one.dependsOn)).toEqual([[], ["a-b"], ["a-b-2"]]);
});

test("a name is cut to 128 bytes and never empty", () => {
  expect(validName("x".repeat(200))).toBe("x".repeat(128));
  expect(validName("")).toBe("unnamed");
  expect(validName("ä b")).toBe("--b");
});

test.each([
  ["another version", { ...minimal([]), schemaVersion: "1.4" }, "only WfFormat 1.5"],
  ["no object", [], "the file must be an object"],
  ["an unknown parent", minimal([task("a", ["b"])]), 'workflow.specification.tasks[0].parents names "b"'],
  ["an id twice", minimal([task("a"), task("a")]), 'workflow.specification.tasks[1].id "a" is there twice'],
  ["an id that is a number", minimal([{ ...task("a"), id: 7 }]), "workflow.specification.tasks[0].id must be a text"],
])("%s is refused with its path", (_what, document, message) => {
  expect(() => readWfFormat(document)).toThrow(message);
});

function read(file: string): unknown {
  return JSON.parse(readFileSync(new URL(`../../../examples/wfinstances/${file}.json`, import.meta.url), "utf8"));
}

function minimal(tasks: readonly unknown[]) {
  return { name: "w", schemaVersion: "1.5", workflow: { specification: { tasks } } };
}

function task(id: string, parents: readonly string[] = []) {
  return { id, name: id, parents };
}

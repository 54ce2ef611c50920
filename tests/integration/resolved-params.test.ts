import { Task_State } from "@runmesh/contracts/task/v1/task_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import { afterAll, beforeAll, expect, test } from "vitest";

let mesh: TestMesh;
beforeAll(async () => {
  mesh = await startMesh();
});
afterAll(() => mesh[Symbol.asyncDispose]());

const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");

async function look(runId: bigint, key: string): Promise<[state: Task_State, resolved: string]> {
  const { task } = await mesh.tasks.getTask({ runId, key });
  return [task!.state, textOf(task!.resolvedParamsJson)];
}

test("a task shows its params as its worker gets them, from when nothing can change them", async () => {
  const worker = await mesh.worker({ handlers: ["first", "second"] });
  const params = '{"x": {"$ref": "#/tasks/first/output/y", "default": 1}, "all": {"$ref": "#/input"}}';
  const runId = await mesh.given.run(
    {
      tasks: [
        { key: "first", handler: "first", params: '{"n": 1.0}' },
        { key: "second", handler: "second", params },
      ],
    },
    { input: "[2]" },
  );

  expect(await look(runId, "first")).toEqual([Task_State.READY, '{"n": 1.0}']);
  expect(await look(runId, "second")).toEqual([Task_State.BLOCKED, ""]);

  await worker.complete(await worker.acquireOne(), '{"y": 9007199254740993}');
  const second = await worker.acquireOne();
  expect(await look(runId, "second")).toEqual([Task_State.LEASED, '{"x":9007199254740993,"all":[2]}']);
  expect(textOf(second.paramsJson)).toBe('{"x":9007199254740993,"all":[2]}');

  await worker.complete(second);
  expect(await look(runId, "second")).toEqual([Task_State.SUCCEEDED, '{"x":9007199254740993,"all":[2]}']);
});

test("what refers to nothing, no worker ever had, or is over 1 MiB is not shown", async () => {
  const worker = await mesh.worker({ handlers: ["absent"] });
  const lost = await mesh.given.run(
    {
      tasks: [
        { key: "lost", handler: "absent", params: '{"$ref": "#/input/absent"}' },
        { key: "next", dependsOn: ["lost"] },
      ],
    },
    { input: "{}" },
  );
  const long = await mesh.given.run(
    { tasks: [{ key: "long", params: `[${Array(5).fill('{"$ref": "#/input"}').join()}]` }] },
    { input: `"${"x".repeat(250_000)}"` },
  );

  await expect(worker.acquire(1, { waitMs: 2_000 })).resolves.toEqual([]);
  await mesh.ended(lost);

  expect(await look(lost, "lost")).toEqual([Task_State.DEAD, ""]);
  expect(await look(lost, "next")).toEqual([Task_State.CANCELLED, ""]);
  expect(await look(long, "long")).toEqual([Task_State.READY, ""]);
});

import { Code, type ConnectRouter } from "@connectrpc/connect";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import { EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { type ListRunsRequest, RunService, type StartRunRequest } from "@runmesh/contracts/run/v1/run_service_pb";
import { Task_State } from "@runmesh/contracts/task/v1/task_pb";
import { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { type RegisterWorkflowRequest, WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import { expect, test } from "vitest";
import { BIG_RUN, ended, oneRun, refuse } from "../test/one-run.ts";
import { serveRoutes } from "../test/routes-server.ts";
import { runCli } from "../test/run-cli.ts";

test("an input goes as the bytes that were typed, with key, version and labels", async () => {
  const starts: StartRunRequest[] = [];
  await using mesh = await serveRoutes(oneRun(Run_State.SUCCEEDED, starts));
  const input = '{"id": 9007199254740993, "x": 1e400}';

  const result = await runCli(
    ["run", "start", "order@2", "--input", input, "--key", "k", "--label", "a=b", "--label", "c=d=e", "--json"],
    { env: { RUNMESH_URL: mesh.url } },
  );

  expect(result).toMatchObject({ exitCode: 0, stderr: [] });
  expect(result.stdout.map((line) => JSON.parse(line))).toEqual([
    { runId: "9007199254740993", created: true, workflowVersion: 2 },
  ]);
  expect(starts[0]).toMatchObject({
    workflow: "order",
    version: 2,
    idempotencyKey: "k",
    labels: { a: "b", c: "d=e" },
    inputPayload: { case: "inputJson" },
  });
  expect(new TextDecoder().decode(starts[0]!.inputPayload.value as Uint8Array)).toBe(input);
});

test("watching with --json prints snapshot, events and the run, one object a line, digits kept", async () => {
  await using mesh = await serveRoutes(oneRun(Run_State.SUCCEEDED));

  const result = await runCli(["run", "watch", String(BIG_RUN), "--json", "--url", mesh.url]);

  const lines = result.stdout.map((line) => JSON.parse(line));
  expect(lines.map((line) => Object.keys(line)[0])).toEqual(["snapshot", "event", "run"]);
  expect(lines[0].snapshot).toMatchObject({ id: "9007199254740993", state: "RUNNING", tasks: { open: 1, dead: 0 } });
  expect(lines[1].event).toEqual({
    type: "TASK_SUCCEEDED",
    runId: "9007199254740993",
    workflowVersion: 0,
    sequence: "2",
    taskKey: "a",
    attempt: 1,
  });
  expect(result.stdout[2]).toContain('"output":{"n":9007199254740993}');
});

test("a stream that breaks is resumed after the last event, and nothing is told twice", async () => {
  const asked: bigint[] = [];
  const event = (sequence: bigint) => ({
    change: {
      kind: { case: "event" as const, value: { type: EventType.TASK_SUCCEEDED, runId: 7n, taskKey: "a", sequence } },
      sequence,
    },
  });
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      getRun: () => ({ run: { ...ended(Run_State.SUCCEEDED), sequence: 3n } }),
      async *watchRun({ afterSequence }) {
        asked.push(afterSequence);
        if (asked.length === 1) {
          yield event(1n);
          yield event(2n);
          throw refuse(Reason.UNAVAILABLE, Code.Unavailable);
        }
        yield event(2n);
        yield event(3n);
      },
    });
  await using mesh = await serveRoutes(routes);

  const result = await runCli(["run", "watch", "7", "--json", "--url", mesh.url]);

  const events = result.stdout.map((line) => JSON.parse(line).event).filter((one) => one !== undefined);
  expect(asked).toEqual([0n, 2n]);
  expect(events.map((one) => one.sequence)).toEqual(["1", "2", "3"]);
});

test("a list is an aligned table or one object a line, and says where the rest begins", async () => {
  const asked: ListRunsRequest[] = [];
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      listRuns(request) {
        asked.push(request);
        return { runs: [ended(Run_State.SUCCEEDED)], nextPageToken: "next" };
      },
    });
  await using mesh = await serveRoutes(routes);
  const words = ["run", "list", "--limit", "1", "--state", "succeeded,failed", "--state", "paused", "--url", mesh.url];

  const people = await runCli(words);
  const script = await runCli([...words, "--json"]);

  expect(people.stdout).toEqual([
    "RUN               WORKFLOW  STATE      TASKS  DEAD  CREATED (UTC)         TOOK  KEY",
    "9007199254740993  order@2   SUCCEEDED    1/1     0  1970-01-01 00:00:00  3.4 s",
  ]);
  expect(people.stderr).toEqual(["More: --page-token next"]);
  expect(script.stdout.map((line) => JSON.parse(line))).toMatchObject([{ id: "9007199254740993" }]);
  expect(script.stderr).toEqual(['{"nextPageToken":"next"}']);
  expect(asked[0]).toMatchObject({
    pageSize: 1,
    filter: { states: [Run_State.SUCCEEDED, Run_State.FAILED, Run_State.PAUSED] },
  });
});

test("a task is found by run and key, and an escape sequence in its error stays harmless", async () => {
  const routes = (router: ConnectRouter) =>
    router.service(TaskService, {
      getTask: ({ runId, key }) => ({
        task: { id: 5n, runId, key, state: Task_State.DEAD, error: { type: "Bad", message: "\u001b[2Jgone" } },
      }),
      listAttempts: () => ({ attempts: [] }),
    });
  await using mesh = await serveRoutes(routes);

  const result = await runCli(["task", "show", "7", "a", "--url", mesh.url]);

  expect(result.exitCode).toBe(0);
  expect(result.stdout).toContain("run       7");
  expect(result.stdout).toContain("error     Bad: \\x1b[2Jgone");
});

test("an imported graph is registered with its edges and runtimes", async () => {
  const registered: RegisterWorkflowRequest[] = [];
  const routes = (router: ConnectRouter) =>
    router.service(WorkflowService, {
      registerWorkflow(request) {
        registered.push(request);
        return { version: { workflow: "chain", version: 1, taskCount: 5, edgeCount: 4 }, created: true };
      },
    });
  await using mesh = await serveRoutes(routes);
  const file = new URL("../../../examples/wfinstances/helloworld-chain-5-chameleon.json", import.meta.url).pathname;

  const result = await runCli(["import", "wfformat", file, "--name", "chain", "--url", mesh.url]);

  const { tasks, name } = registered[0]!.definition!;
  expect(result.stdout).toEqual(["Registered chain@1: 5 tasks, 4 edges"]);
  expect(name).toBe("chain");
  expect(tasks.map((task) => task.dependsOn.length)).toEqual([0, 1, 1, 1, 1]);
  expect(new TextDecoder().decode(tasks[1]!.paramsPayload.value as Uint8Array)).toBe(
    '{"runtimeMs":100120,"program":"cpuhog"}',
  );
});

test("--version after a command is wrong usage, and not the end of a command that did nothing", async () => {
  const misplaced = await runCli(["run", "rerun", "7", "--version", "2"]);
  const asked = await runCli(["--url", "http://127.0.0.1:1", "--version"]);
  const text = await runCli(["run", "signal", "7", "go", "--", "--version"]);

  expect(misplaced).toMatchObject({ exitCode: 2, stdout: [] });
  expect(misplaced.stderr.join(" ")).toContain("--workflow-version");
  expect(asked.exitCode).toBe(0);
  expect(text.stdout).toEqual([]);
});

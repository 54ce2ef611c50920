import { Code, type ConnectRouter } from "@connectrpc/connect";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import { Run_State, RunLeft_Cause } from "@runmesh/contracts/run/v1/run_pb";
import {
  type CancelRunsRequest,
  type RerunRunRequest,
  type RetryRunsRequest,
  RunService,
  type SendSignalRequest,
  type WatchRunsRequest,
} from "@runmesh/contracts/run/v1/run_service_pb";
import { Task_State } from "@runmesh/contracts/task/v1/task_pb";
import { type ReplayDeadLettersRequest, TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import { expect, test } from "vitest";
import { refuse } from "../test/one-run.ts";
import { serveRoutes } from "../test/routes-server.ts";
import { runCli } from "../test/run-cli.ts";

test("runs of a filter are counted, and moved page by page only with --yes, under one request id", async () => {
  const asked: CancelRunsRequest[] = [];
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      listRuns: () => ({ runs: [{ id: 1n }, { id: 2n }] }),
      cancelRuns(request) {
        asked.push(request);
        return asked.length === 1
          ? { movedCount: 50, nextPageToken: "next" }
          : { movedCount: 7, passedOverCount: 2, nextPageToken: "" };
      },
    });
  await using mesh = await serveRoutes(routes);
  const words = ["run", "cancel", "--workflow", "order@2", "--label", "team=a", "--comment", "why", "--url", mesh.url];

  const careful = await runCli(words);
  const before = asked.length;
  const people = await runCli([...words, "--yes"]);
  asked.length = 0;
  const script = await runCli([...words, "--yes", "--json"]);

  expect(careful).toMatchObject({ exitCode: 2, stdout: [] });
  expect(careful.stderr.join("\n")).toContain("2 runs would be cancelled");
  expect(before).toBe(0);
  expect(people.stdout).toEqual(["57 runs cancelled, 2 passed over: others had moved them"]);
  expect(JSON.parse(script.stdout[0]!)).toEqual({ movedCount: 57, passedOverCount: 2 });
  expect(asked.map((request) => request.pageToken)).toEqual(["", "next"]);
  expect(asked[0]!.filter).toMatchObject({ workflow: "order", workflowVersion: 2, labels: { team: "a" } });
  expect(asked.map((request) => request.comment)).toEqual(["why", "why"]);
  expect(asked[0]!.requestId).not.toBe("");
  expect(asked[1]!.requestId).toBe(asked[0]!.requestId);
});

test("a move wants a run or a filter, one of the two", async () => {
  for (const verb of ["cancel", "pause", "resume", "retry"]) {
    const neither = await runCli(["run", verb]);
    const both = await runCli(["run", verb, "7", "--state", "failed", "--yes"]);

    expect([neither.exitCode, both.exitCode]).toEqual([2, 2]);
    expect(neither.stderr.join("\n")).toContain("give a run, or a filter");
  }
});

test("each move of one run says how it stands then", async () => {
  const calls: string[] = [];
  const answer = (name: string, state: Run_State) => (request: { runId: bigint }) => {
    calls.push(`${name} ${request.runId}`);
    return { run: { id: request.runId, state } };
  };
  const fresh: RetryRunsRequest[] = [];
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      cancelRun: answer("cancel", Run_State.CANCELLED),
      pauseRun: answer("pause", Run_State.PAUSED),
      resumeRun: answer("resume", Run_State.RUNNING),
      retryRun: answer("retry", Run_State.RUNNING),
      retryRuns(request) {
        fresh.push(request);
        return { movedCount: 1 };
      },
    });
  await using mesh = await serveRoutes(routes);
  const say = async (...words: string[]) => (await runCli(["run", ...words, "--url", mesh.url])).stdout;

  expect(await say("cancel", "7", "--comment", "enough")).toEqual(["Run 7 is CANCELLED"]);
  expect(await say("pause", "7")).toEqual(["Run 7 is PAUSED"]);
  expect(await say("resume", "7")).toEqual(["Run 7 is RUNNING"]);
  expect(await say("retry", "7")).toEqual(["Run 7 is RUNNING"]);
  expect(await say("retry", "--state", "failed", "--fresh", "--yes")).toEqual(["1 run retried"]);
  expect(calls).toEqual(["cancel 7", "pause 7", "resume 7", "retry 7"]);
  expect(fresh[0]).toMatchObject({ fresh: true, filter: { states: [Run_State.FAILED] } });
});

test("a rerun asks for its own definition, the newest or a version", async () => {
  const asked: RerunRunRequest[] = [];
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      rerunRun(request) {
        asked.push(request);
        return { runId: 8n, created: true, workflowVersion: 2 };
      },
    });
  await using mesh = await serveRoutes(routes);

  const own = await runCli(["run", "rerun", "7", "--url", mesh.url]);
  await runCli(["run", "rerun", "7", "--newest", "--url", mesh.url]);
  await runCli(["run", "rerun", "7", "--workflow-version", "3", "--url", mesh.url]);
  const both = await runCli(["run", "rerun", "7", "--newest", "--workflow-version", "3", "--url", mesh.url]);

  expect(own.stdout).toEqual(["Started run 8"]);
  expect(both.exitCode).toBe(2);
  expect(asked.map((request) => request.definition)).toEqual([
    { case: undefined },
    { case: "newestVersion", value: true },
    { case: "workflowVersion", value: 3 },
  ]);
});

test("a signal carries its value digit for digit", async () => {
  const sent: SendSignalRequest[] = [];
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      sendSignal(request) {
        sent.push(request);
        return {};
      },
    });
  await using mesh = await serveRoutes(routes);

  const result = await runCli(["run", "signal", "7", "paid", "--value", '{"n":9007199254740993}', "--url", mesh.url]);

  expect(result).toMatchObject({ exitCode: 0, stdout: ["Sent paid to run 7"] });
  expect(sent[0]).toMatchObject({ runId: 7n, name: "paid", payload: { case: "valueJson" } });
  expect(Buffer.from(sent[0]!.payload.value as Uint8Array).toString()).toBe('{"n":9007199254740993}');
});

test("dead letters are listed with their error, and replayed one by one or all", async () => {
  const asked: ReplayDeadLettersRequest[] = [];
  const task = { id: 5n, runId: 7n, key: "a", handler: "h", attemptCount: 3, state: Task_State.DEAD };
  const run = { id: 7n, workflow: "order", endTime: { seconds: 1_772_366_407n } };
  const routes = (router: ConnectRouter) => {
    router.service(RunService, { awaitRuns: ({ runIds }) => ({ runs: runIds.includes(7n) ? [run] : [] }) });
    router.service(TaskService, {
      getTask: () => ({ task }),
      listDeadLetters: () => ({ tasks: [{ ...task, error: { type: "Bad", message: "gone" } }] }),
      replayTask: () => ({ task: { ...task, state: Task_State.READY } }),
      replayDeadLetters(request) {
        asked.push(request);
        return { replayedCount: 3, passedOverCount: 0, nextPageToken: asked.length === 1 ? "next" : "" };
      },
    });
  };
  await using mesh = await serveRoutes(routes);
  const url = ["--url", mesh.url];

  const listed = await runCli(["dead-letters", "list", ...url]);
  const one = await runCli(["task", "replay", "7", "a", ...url]);
  const careful = await runCli(["dead-letters", "replay", "--workflow", "order", ...url]);
  const all = await runCli(["dead-letters", "replay", "--workflow", "order", "--error-type", "Bad", "--yes", ...url]);

  expect(listed.stdout).toEqual([
    "RUN  WORKFLOW  FAILED (UTC)         KEY  HANDLER  ATTEMPTS  ERROR      TASK",
    "7    order     2026-03-01 12:00:07  a    h               3  Bad: gone  5",
  ]);
  expect(one.stdout).toEqual(["Replayed a of run 7"]);
  expect(careful.exitCode).toBe(2);
  expect(all.stdout).toEqual(["6 dead letters replayed"]);
  expect(asked).toMatchObject([
    { workflow: "order", errorType: "Bad", pageToken: "" },
    { workflow: "order", errorType: "Bad", pageToken: "next" },
  ]);
});

test("watching all tells each run and its moves, and after a broken stream only what is not known", async () => {
  const asked: WatchRunsRequest[] = [];
  const run = (id: bigint, sequence: bigint, state: Run_State) => ({ id, sequence, state, workflow: "order" });
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      async *watchRuns(request) {
        asked.push(request);
        if (asked.length === 1) {
          const runs = [run(8n, 1n, Run_State.RUNNING), run(7n, 1n, Run_State.RUNNING)];
          yield { change: { kind: { case: "snapshot", value: { runs, complete: true } } } };
          yield { change: { kind: { case: "run", value: run(7n, 2n, Run_State.PAUSED) } } };
          throw refuse(Reason.UNAVAILABLE, Code.Unavailable);
        }
        yield { change: { kind: { case: "snapshot", value: { runs: [], complete: true } } } };
        const ended = run(8n, 2n, Run_State.SUCCEEDED);
        yield { change: { kind: { case: "left", value: { runId: 8n, cause: RunLeft_Cause.FILTER, run: ended } } } };
      },
    });
  await using mesh = await serveRoutes(routes);
  const left = new AbortController();
  const onLine = (line: string) => {
    if (line.includes('"left"')) left.abort();
  };

  const result = await runCli(["run", "watch", "--state", "running,paused", "--json", "--url", mesh.url], {
    signal: left.signal,
    onLine,
  });

  expect(result.exitCode).toBe(130);
  expect(result.stdout.map((line) => JSON.parse(line))).toMatchObject([
    { run: { id: "7", state: "RUNNING" } },
    { run: { id: "8", state: "RUNNING" } },
    { run: { id: "7", state: "PAUSED" } },
    { left: { runId: "8", cause: "FILTER", run: { state: "SUCCEEDED" } } },
  ]);
  expect(asked[0]).toMatchObject({ limit: 100, known: [], filter: { states: [Run_State.RUNNING, Run_State.PAUSED] } });
  expect(asked[1]!.known).toMatchObject([
    { runId: 7n, sequence: 2n },
    { runId: 8n, sequence: 1n },
  ]);
});

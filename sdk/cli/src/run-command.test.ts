import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { Code, type ConnectRouter } from "@connectrpc/connect";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import { expect, onTestFinished, test } from "vitest";
import { CERTIFICATE, KEY } from "../../client/test/certificate.ts";
import { oneRun, refuse } from "../test/one-run.ts";
import { serveRoutes } from "../test/routes-server.ts";
import { runCli } from "../test/run-cli.ts";

test.each([
  ["SUCCEEDED", 0],
  ["FAILED", 1],
  ["CANCELLED", 1],
  ["TIMED_OUT", 1],
] as const)("waiting for a run that ends %s exits %i", async (state, exitCode) => {
  await using mesh = await serveRoutes(oneRun(Run_State[state]));

  const result = await runCli(["run", "start", "order", "--wait", "--url", mesh.url]);

  expect(result.exitCode).toBe(exitCode);
  expect(result.stdout).toContain(`state     ${state}`);
});

test("a refusal exits 4 and names reason, path, advice and request id", async () => {
  const routes = (router: ConnectRouter) =>
    router.service(WorkflowService, {
      registerWorkflow: () => {
        throw refuse(Reason.UNKNOWN_TASK, Code.InvalidArgument);
      },
    });
  await using mesh = await serveRoutes(routes);
  const setting = { stdin: '{"name":"n","tasks":[]}', env: { RUNMESH_URL: mesh.url } };

  const people = await runCli(["workflow", "register", "-"], setting);
  const script = await runCli(["workflow", "register", "-", "--json"], setting);

  expect(people).toEqual({
    exitCode: 4,
    stdout: [],
    stderr: [
      "runmesh: UNKNOWN_TASK: no such task",
      "  definition.tasks[3].depends_on[0]: names no task",
      "  Do otherwise.",
      "  request id req-1",
    ],
  });
  expect(JSON.parse(script.stderr[0]!)).toEqual({
    error: {
      exitCode: 4,
      reason: "UNKNOWN_TASK",
      message: "no such task",
      violations: [
        { field: "definition.tasks[3].depends_on[0]", reason: "UNKNOWN_TASK", description: "names no task" },
      ],
      advice: "Do otherwise.",
      requestId: "req-1",
    },
  });
});

test("an address where nobody listens exits 3 and says how to start a mesh", async () => {
  const gone = await serveRoutes(() => {});
  await gone[Symbol.asyncDispose]();

  const result = await runCli(["run", "show", "7", "--url", gone.url]);

  expect(result.exitCode).toBe(3);
  expect(result.stderr[0]).toContain(`runmesh: UNAVAILABLE: ${gone.url} does not answer`);
  expect(result.stderr[1]).toContain("runmesh dev");
});

test.each([
  ["an unknown command", ["frobnicate"]],
  ["a group without a command", ["run"]],
  ["a missing argument", ["run", "show"]],
  ["an id that is none", ["run", "show", "abc"]],
  ["an id beyond int64", ["run", "show", "9223372036854775808"]],
  ["an unknown state", ["run", "list", "--state", "DONE"]],
  ["an input that is not JSON", ["run", "start", "order", "--input", "{id: 7}"]],
  ["a file that is not there", ["workflow", "register", "/nowhere/order.json"]],
  ["a label without a value", ["run", "start", "order", "--label", "a"]],
  ["a URL that is none", ["run", "list", "--url", "localhost:7400"]],
  ["a scale that is none", ["import", "wfformat", "-", "--simulate", "fast"]],
  ["no database", ["migrate"]],
])("%s is wrong usage, for people and for scripts", async (_what, words) => {
  const people = await runCli(words);
  const script = await runCli([...words, "--json"]);

  expect(people).toMatchObject({ exitCode: 2, stdout: [] });
  expect(people.stderr.join("\n")).not.toBe("");
  expect(script).toMatchObject({ exitCode: 2, stdout: [] });
  expect(JSON.parse(script.stderr.join("\n"))).toMatchObject({ error: { exitCode: 2, reason: "WRONG_USAGE" } });
});

test("--help exits 0 and documents the exit codes", async () => {
  const result = await runCli(["--help"]);

  expect(result.exitCode).toBe(0);
  expect(result.stdout.join("\n")).toMatch(
    /0 +done\n +1 +the run failed.*\n +2 .*\n +3 +not reachable.*\n +4 +refused/,
  );
});

test("an aborted watch exits 130", async () => {
  const stop = new AbortController();
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      async *watchRun(_request, context) {
        const snapshot = { id: 7n, state: Run_State.RUNNING, sequence: 1n };
        yield { change: { kind: { case: "snapshot", value: snapshot }, sequence: 1n } };
        await new Promise((resolve) => context.signal.addEventListener("abort", resolve, { once: true }));
      },
    });
  await using mesh = await serveRoutes(routes);

  const result = await runCli(["run", "watch", "7", "--url", mesh.url], {
    signal: stop.signal,
    onLine: () => stop.abort(),
  });

  expect(result).toEqual({ exitCode: 130, stdout: ["run 7 is RUNNING"], stderr: [] });
});

test("a run that failed is shown with the command that shows the attempts of its task", async () => {
  const failure = { taskKey: "charge", errorType: "CardDeclined", message: "no" };
  const routes = (router: ConnectRouter) =>
    router.service(RunService, { getRun: () => ({ run: { id: 7n, state: Run_State.FAILED, failure } }) });
  await using mesh = await serveRoutes(routes);

  const people = await runCli(["run", "show", "7"], { env: { RUNMESH_URL: mesh.url } });
  const script = await runCli(["run", "show", "7", "--json"], { env: { RUNMESH_URL: mesh.url } });

  expect(people.stderr).toEqual([expect.stringMatching(/^Its attempts: (npx )?runmesh task show 7 charge$/)]);
  expect(script.stderr).toEqual([]);
});

test("the child runs of a run are listed by their parent", async () => {
  const asked: bigint[] = [];
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      listRuns({ filter }) {
        asked.push(filter!.parentRunId);
        return {};
      },
    });
  await using mesh = await serveRoutes(routes);

  await runCli(["run", "list", "--parent", "7", "--url", mesh.url]);
  await runCli(["run", "list", "--url", mesh.url]);

  expect(asked).toEqual([7n, 0n]);
});

test("a mesh whose certificate is not trusted is told with how its CA is named", async () => {
  const server = createServer({ key: KEY, cert: CERTIFICATE });
  onTestFinished(() => void server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const result = await runCli(["run", "list", "--url", url]);

  expect(result.exitCode).toBe(3);
  expect(result.stderr).toEqual([
    expect.stringContaining(`runmesh: UNAVAILABLE: ${url} is not trusted: `),
    expect.stringContaining("NODE_EXTRA_CA_CERTS=ca.pem"),
  ]);
});

test("an id that is none is told in plain words", async () => {
  const people = await runCli(["run", "show", "abc"]);
  const script = await runCli(["run", "show", "abc", "--json"]);

  const message = "error: 'abc' is invalid for argument 'run'. An id is a positive whole number.";
  expect(people).toEqual({ exitCode: 2, stdout: [], stderr: [message, "(--help says more)"] });
  expect(JSON.parse(script.stderr[0]!)).toMatchObject({ error: { reason: "WRONG_USAGE", message } });
});

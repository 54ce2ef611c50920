import type { ConnectRouter } from "@connectrpc/connect";
import { connect } from "@runmesh/client";
import { EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { NotRunning_NoWorker_Missing as Missing } from "@runmesh/contracts/task/v1/task_pb";
import { expect, test } from "vitest";
import { BIG_RUN, ended } from "../test/one-run.ts";
import { serveRoutes } from "../test/routes-server.ts";
import { waitForRun } from "./wait-for-run.ts";

test("a wait for a run that stands still says why, until it moves", async () => {
  const told = Promise.withResolvers<void>();
  let hasEnded = false;
  const noWorker = { missing: Missing.HANDLER, handler: "charge", queue: "default" };
  const routes = (router: ConnectRouter) =>
    router.service(RunService, {
      getRun() {
        if (hasEnded) return { run: ended(Run_State.SUCCEEDED) };
        return {
          run: { state: Run_State.RUNNING, notRunning: { taskKey: "a", why: { case: "noWorker", value: noWorker } } },
        };
      },
      async *watchRun() {
        const snapshot = { id: BIG_RUN, state: Run_State.RUNNING, tasks: { total: 1, open: 1 }, sequence: 1n };
        yield { change: { kind: { case: "snapshot", value: snapshot }, sequence: 1n } };
        await told.promise;
        hasEnded = true;
        const event = { type: EventType.TASK_SUCCEEDED, runId: BIG_RUN, taskKey: "a", attempt: 1, sequence: 2n };
        yield { change: { kind: { case: "event", value: event }, sequence: 2n, run: ended(Run_State.SUCCEEDED) } };
      },
    });
  await using mesh = await serveRoutes(routes);
  const lines: string[] = [];
  const progress = {
    update(line: string) {
      lines.push(line);
      if (line.includes("no worker")) told.resolve();
    },
    clear: () => {},
  };

  const run = await waitForRun(connect({ url: mesh.url }), BIG_RUN, progress, AbortSignal.timeout(9_000), 20);

  expect(run.state).toBe(Run_State.SUCCEEDED);
  expect(lines.find((line) => line.includes("no worker"))).toMatch(
    /^RUNNING {2}░{24} {2}0\/1 tasks {2}\d+ ms {2}task a: no worker has the handler charge/,
  );
  expect(lines.at(-1)).not.toContain("no worker");
});

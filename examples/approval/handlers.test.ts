import { runTask } from "@runmesh/worker";
import { expect, test } from "vitest";
import { approve } from "./approval.ts";
import { approveHandler } from "./handlers.ts";

const order = { order: "o-7", cents: 1299 };

test("an approved order is paid and shipped", async () => {
  const started: unknown[] = [];

  const output = await runTask(approve, approveHandler, order, {
    signals: { decision: [{ by: "ada", yes: true }] },
    recorded: { ask: { sent: true }, pay: { payment: "P-1" } },
    onStartRun(workflow, input) {
      started.push([workflow, input]);
      return { tracking: "T-1" };
    },
  });

  expect(output).toEqual({ state: "paid", tracking: "T-1" });
  expect(started).toEqual([["shipping", { order: "o-7" }]]);
});

test("an order that nobody decides on expires after three reminders", async () => {
  const output = await runTask(approve, approveHandler, order, {});

  expect(output).toEqual({ state: "expired" });
});

test("a child that failed fails the handler with what it failed with", async () => {
  const failing = runTask(approve, approveHandler, order, {
    signals: { decision: [{ by: "ada", yes: true }] },
    onStartRun: () => Promise.reject(new RangeError("no parcel left")),
  });

  await expect(failing).rejects.toMatchObject({ name: "RunFailedError", errorType: "RangeError" });
});

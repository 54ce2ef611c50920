import { existsSync } from "node:fs";
import { connect, defineTask, defineWorkflow } from "@runmesh/client";
import { startStandalone } from "@runmesh/standalone/standalone";
import { startTestMesh } from "@runmesh/standalone/testing";
import { createWorker } from "@runmesh/worker";
import { expect, test, vi } from "vitest";
import { z } from "zod";

vi.mock("@runmesh/standalone/standalone", { spy: true });

test("a user's test runs a workflow on a mesh of its own, which leaves nothing behind", async () => {
  const greet = defineTask({ name: "greet", input: z.string(), output: z.string() });
  const hello = defineWorkflow({
    name: "hello",
    input: z.object({ name: z.string() }),
    build: (w) => w.task("greet", greet, w.input.name).output,
  });
  const mesh = await startTestMesh();
  const client = connect({ url: mesh.url });
  const worker = createWorker({ url: mesh.url, handlers: [greet.handle((name) => `Hello, ${name}!`)], log: () => {} });
  await worker.start();

  const run = await client.start(hello, { name: "Ada" });
  const greeting = await run.result();
  const findings = await mesh.doctor();
  await worker.stop();
  client.close();
  await Promise.all([mesh.stop(), mesh[Symbol.asyncDispose]()]);

  expect(greeting).toBe("Hello, Ada!");
  expect(findings).toEqual([]);
  await expect(fetch(mesh.url)).rejects.toThrow();
  const { dataDir } = vi.mocked(startStandalone).mock.calls[0]![0]!;
  expect(existsSync(dataDir!)).toBe(false);
});

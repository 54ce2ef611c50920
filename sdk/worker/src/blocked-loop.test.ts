import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { startFakeLeases } from "../test/fake-leases.ts";

const script = fileURLToPath(new URL("../test/blocking-worker.ts", import.meta.url));

test("a handler that blocks the event loop for three leases keeps its own and the prefetched ones", async () => {
  await using fake = await startFakeLeases(1_000);
  const task = (ms: number) => ({ handler: "block", paramsJson: new TextEncoder().encode(String(ms)) });
  fake.add(task(3_000), task(1), task(1));
  const child = spawn(process.execPath, ["--conditions=runmesh-source", script, fake.url], { stdio: "inherit" });

  await fake.until(() => fake.completed.length === 3);
  child.kill("SIGTERM");
  const [code] = await once(child, "exit");

  expect(fake.expiredCount()).toBe(0);
  expect(fake.renewals.length).toBeGreaterThan(5);
  expect(code).toBe(0);
}, 20_000);

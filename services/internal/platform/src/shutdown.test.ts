import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import { silentLog } from "./log.ts";
import { stopOnSignals } from "./shutdown.ts";

class FakeProcess extends EventEmitter {
  readonly exits: number[] = [];
  exit(code: number): never {
    this.exits.push(code);
    this.emit("exited");
    return undefined as never;
  }
}

function setUp(stop: () => Promise<void>, timeoutMs = 60_000) {
  const host = new FakeProcess();
  const options = { log: silentLog, timeoutMs, process: host as unknown as NodeJS.Process };
  const release = stopOnSignals({ name: "s", start: async () => {}, stop }, options);
  return { host, release, exited: new Promise<void>((resolve) => host.once("exited", resolve)) };
}

test("the first signal stops the service, and then the process ends with 0", async () => {
  let stops = 0;
  const { host, exited } = setUp(async () => {
    stops++;
  });

  host.emit("SIGTERM", "SIGTERM");
  await exited;

  expect(stops).toBe(1);
  expect(host.exits).toEqual([0]);
});

test("a second signal ends the process at once, and the service is not stopped twice", () => {
  let stops = 0;
  const { host } = setUp(() => {
    stops++;
    return new Promise(() => {});
  });

  host.emit("SIGINT", "SIGINT");
  host.emit("SIGINT", "SIGINT");

  expect(stops).toBe(1);
  expect(host.exits).toEqual([1]);
});

test("a service that fails to stop, or takes too long, ends the process with 1", async () => {
  const failing = setUp(() => Promise.reject(new Error("stuck")));
  const slow = setUp(() => new Promise(() => {}), 1);

  failing.host.emit("SIGTERM", "SIGTERM");
  slow.host.emit("SIGTERM", "SIGTERM");
  await Promise.all([failing.exited, slow.exited]);

  expect([failing.host.exits, slow.host.exits]).toEqual([[1], [1]]);
});

test("signals can be given back", () => {
  const { host, release } = setUp(async () => {});

  release();

  expect(host.listenerCount("SIGTERM") + host.listenerCount("SIGINT")).toBe(0);
});

import { expect, test } from "vitest";
import { composeServices, type Service } from "./service.ts";

function recording(name: string, told: string[], failing?: "start" | "stop"): Service {
  const move = async (what: "start" | "stop") => {
    told.push(`${what} ${name}`);
    if (failing === what) throw new Error(`${name} cannot ${what}`);
  };
  return { name, start: () => move("start"), stop: () => move("stop") };
}

test("services start in order and stop in reverse, once each, and can start again", async () => {
  const told: string[] = [];
  const all = composeServices("all", [recording("a", told), recording("b", told)]);

  await Promise.all([all.start(), all.start()]);
  await Promise.all([all.stop(), all.stop()]);
  await all.start();

  expect(told).toEqual(["start a", "start b", "stop b", "stop a", "start a", "start b"]);
});

test("a failed start stops what was started and passes its cause on", async () => {
  const told: string[] = [];
  const all = composeServices("all", [recording("a", told), recording("b", told, "start"), recording("c", told)]);

  await expect(all.start()).rejects.toMatchObject({
    message: "all: b did not start",
    cause: { message: "b cannot start" },
  });

  expect(told).toEqual(["start a", "start b", "stop a"]);
});

test("one service that does not stop keeps no other from stopping", async () => {
  const told: string[] = [];
  const all = composeServices("all", [recording("a", told), recording("b", told, "stop")]);
  await all.start();

  await expect(all.stop()).rejects.toMatchObject({ errors: [{ message: "b cannot stop" }] });

  expect(told).toEqual(["start a", "start b", "stop b", "stop a"]);
});

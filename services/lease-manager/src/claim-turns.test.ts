import { expect, onTestFinished, test, vi } from "vitest";
import { ClaimTurns } from "./claim-turns.ts";

const PATIENT = { timeoutMs: 10_000, signal: new AbortController().signal };

/** Work that ends when it is told to, and notes when it begins. */
function steered(turns: ClaimTurns, begun: string[]) {
  return (name: string, routeIds: readonly number[], patience = PATIENT) => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const answer = turns.take(routeIds, patience, () => {
      begun.push(name);
      return promise;
    });
    return { answer, end: () => resolve(name) };
  };
}

/** Everything that can go on has gone on. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("claims of the same routes go in the order they came, one at a time", async () => {
  const begun: string[] = [];
  const claim = steered(new ClaimTurns(), begun);
  const claims = ["a", "b", "c"].map((name) => claim(name, [1, 2]));
  await settled();
  expect(begun).toEqual(["a"]);
  claims[0]!.end();
  await settled();
  expect(begun).toEqual(["a", "b"]);
  for (const { end } of claims) end();
  expect(await Promise.all(claims.map(({ answer }) => answer))).toEqual(["a", "b", "c"]);
});

test("claims of other routes wait for nobody", async () => {
  const begun: string[] = [];
  const claim = steered(new ClaimTurns(), begun);
  const claims = [claim("a", [1]), claim("b", [2]), claim("c", [1, 2])];
  await settled();
  expect(begun).toEqual(["a", "b", "c"]);
  for (const { end } of claims) end();
  await Promise.all(claims.map(({ answer }) => answer));
});

test("one that gives up does nothing, and lets nobody pass who came later", async () => {
  const begun: string[] = [];
  const claim = steered(new ClaimTurns(), begun);
  const abort = new AbortController();
  const first = claim("first", [1]);
  const late = claim("late", [1], { ...PATIENT, timeoutMs: 1 });
  const aborted = claim("aborted", [1], { ...PATIENT, signal: abort.signal });
  const last = claim("last", [1]);
  abort.abort();
  expect(await late.answer).toBeUndefined();
  expect(await aborted.answer).toBeUndefined();
  await settled();
  expect(begun).toEqual(["first"]);
  first.end();
  last.end();
  expect(await last.answer).toBe("last");
  expect(begun).toEqual(["first", "last"]);
});

test("a claim that fails passes the turn on", async () => {
  const turns = new ClaimTurns();
  const failing = turns.take([1], PATIENT, async () => {
    throw new Error("no database");
  });
  const next = turns.take([1], PATIENT, async () => "next");
  await expect(failing).rejects.toThrow("no database");
  expect(await next).toBe("next");
});

test("a claim that hangs keeps those behind it waiting for a second, and ends none of their turns when it comes back", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const begun: string[] = [];
  const claim = steered(new ClaimTurns(), begun);
  const claims = ["hung", "second", "third"].map((name) => claim(name, [1]));
  await vi.advanceTimersByTimeAsync(999);
  expect(begun).toEqual(["hung"]);
  await vi.advanceTimersByTimeAsync(1);
  expect(begun).toEqual(["hung", "second"]);

  claims[0]!.end();
  await vi.advanceTimersByTimeAsync(1);
  expect(begun).toEqual(["hung", "second"]);
  claims[1]!.end();
  await vi.advanceTimersByTimeAsync(1);
  expect(begun).toEqual(["hung", "second", "third"]);
  claims[2]!.end();
  expect(await Promise.all(claims.map(({ answer }) => answer))).toEqual(["hung", "second", "third"]);
});

test("two hundred behind a claim that hangs are each told at their time, and who comes later has a turn", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const begun: string[] = [];
  const claim = steered(new ClaimTurns(), begun);
  const hung = claim("hung", [1]);
  const told: (string | undefined)[] = [];
  for (let i = 0; i < 200; i++) {
    void claim(`${i}`, [1], { ...PATIENT, timeoutMs: 500 }).answer.then((answer) => told.push(answer));
  }
  await vi.advanceTimersByTimeAsync(500);
  expect(told).toEqual(Array.from({ length: 200 }, () => undefined));

  const next = claim("next", [1]);
  next.end();
  await vi.advanceTimersByTimeAsync(500);
  expect(await next.answer).toBe("next");
  hung.end();
  expect(await hung.answer).toBe("hung");
});

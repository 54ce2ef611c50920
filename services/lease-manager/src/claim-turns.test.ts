import { expect, test } from "vitest";
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

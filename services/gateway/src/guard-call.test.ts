import { MeshError } from "@runmesh/domain/errors";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Credential } from "./authenticator.ts";
import { guardCall, guardStream, RECHECK_MS } from "./guard-call.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const REVOKED = new MeshError("UNAUTHENTICATED", "revoked");
const AWAY = new MeshError("UNAVAILABLE", "away");
const principal = { tenantId: 1, tenant: "t", name: "n", roles: [] };

/** A credential whose looks are answered in turn; the last answer stays. */
function credentialOf(...answers: readonly (MeshError | undefined)[]): Credential & { looks(): number } {
  let looks = 0;
  return {
    principal,
    looks: () => looks,
    async recheck() {
      const answer = answers[Math.min(looks++, answers.length - 1)];
      if (answer !== undefined) throw answer;
    },
  };
}

test("a call that waits ends when its credential does", async () => {
  const call = guardCall(credentialOf(undefined, REVOKED), new Promise(() => {}));
  const refused = expect(call).rejects.toBe(REVOKED);

  await vi.advanceTimersByTimeAsync(2 * RECHECK_MS);

  await refused;
});

test("a call that is answered is looked at no more", async () => {
  const credential = credentialOf(REVOKED);

  expect(await guardCall(credential, Promise.resolve("answer"))).toBe("answer");
  await vi.advanceTimersByTimeAsync(10 * RECHECK_MS);

  expect(credential.looks()).toBe(0);
  expect(vi.getTimerCount()).toBe(0);
});

test("while the database cannot be asked, a call goes on", async () => {
  const credential = credentialOf(AWAY, AWAY, undefined);
  const answer = Promise.withResolvers<string>();
  const call = guardCall(credential, answer.promise);

  await vi.advanceTimersByTimeAsync(4 * RECHECK_MS);
  answer.resolve("answer");

  expect(await call).toBe("answer");
  expect(credential.looks()).toBe(4);
});

test("a stream ends when its credential does, in a wait or between two messages, and its source is told", async () => {
  for (const waits of [true, false]) {
    let returned = false;
    const source = {
      [Symbol.asyncIterator]: () => ({
        next: () => (waits ? new Promise<never>(() => {}) : Promise.resolve({ done: false, value: 1 })),
        async return() {
          returned = true;
          return { done: true as const, value: undefined };
        },
      }),
    };
    const stream = guardStream(credentialOf(undefined, REVOKED), source);
    if (!waits) await stream.next();
    const read = waits ? stream.next() : undefined;
    const refused = read && expect(read).rejects.toBe(REVOKED);

    await vi.advanceTimersByTimeAsync(2 * RECHECK_MS);

    await (refused ?? expect(stream.next()).rejects.toBe(REVOKED));
    expect(returned).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  }
});

test("a stream that its reader leaves is looked at no more", async () => {
  async function* count() {
    for (let i = 0; ; i++) yield i;
  }
  const credential = credentialOf(undefined);

  for await (const number of guardStream(credential, count())) if (number === 3) break;

  expect(vi.getTimerCount()).toBe(0);
});

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/** Another system, which honours idempotency keys: the first call of a key has an effect, a repeat answers as it did. */
export interface EffectsReceiver extends AsyncDisposable {
  readonly url: string;
  /** Number of the effect by key. */
  readonly effects: ReadonlyMap<string, number>;
  /** When each key was last called, and how often. */
  readonly calls: ReadonlyMap<string, { lastAt: number; count: number }>;
}

/** Answers come after up to `slowMs`, so that a process that is killed leaves calls whose answer it never saw. */
export async function startEffectsReceiver(slowMs: number): Promise<EffectsReceiver> {
  const effects = new Map<string, number>();
  const calls = new Map<string, { lastAt: number; count: number }>();
  const server = createServer(async (request, response) => {
    const key = new URL(request.url!, "http://receiver").searchParams.get("key")!;
    calls.set(key, { lastAt: Date.now(), count: (calls.get(key)?.count ?? 0) + 1 });
    const number = effects.get(key) ?? effects.size + 1;
    effects.set(key, number);
    await delay(Math.random() * slowMs);
    response.end(String(number));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    effects,
    calls,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

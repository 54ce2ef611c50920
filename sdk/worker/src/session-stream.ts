/**
 * Runs in the renewal thread: opens the session's stream and keeps it. A stream that ends or falls silent is opened
 * again with the session's id and token; a session that the server has closed is followed by a new one.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "@connectrpc/connect";
import { backoffMs, readCallError } from "@runmesh/client/internal";
import type { Attached, LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import type { LeaseKeeper } from "./lease-keeper.ts";
import type { FromThread, Session, ThreadOptions } from "./renewal-protocol.ts";

/** The server beats each 10 s: nothing for longer, and the stream is dead. */
const SILENCE_MS = 25_000;
/** Repeating would not help. */
const FINAL: ReadonlySet<string> = new Set(["UNAUTHENTICATED", "FORBIDDEN", "INVALID_FIELD", "NOT_SERVED"]);

export interface SessionStream {
  /** Resolves when the signal aborts, or when the mesh will not have the worker. */
  run(signal: AbortSignal): Promise<void>;
  /** The server told another call that the session is closed. */
  closed(sessionId: bigint): void;
}

export function createSessionStream(
  client: Client<typeof LeaseService>,
  options: ThreadOptions,
  post: (message: FromThread) => void,
  keeper: () => LeaseKeeper,
): SessionStream {
  let session: Session | undefined;
  let attachedBefore = false;
  let stream = new AbortController();

  function close(): void {
    if (session === undefined) return;
    session = undefined;
    keeper().end();
    post({ kind: "closed" });
  }

  function attached({ sessionId, sessionToken, leaseMs, renewMs }: Attached): void {
    if (session !== undefined && session.sessionId !== sessionId) close();
    const isNew = session === undefined;
    session = { sessionId, sessionToken, leaseMs, renewMs: renewMs || leaseMs / 3 };
    attachedBefore = true;
    keeper().begin(session);
    if (isNew) post({ kind: "attached", ...session });
  }

  /** One stream, until it ends. True when the server asked for another. */
  async function follow(signal: AbortSignal, onMessage: () => void): Promise<boolean> {
    const { name, handlers, queues, capabilities, slots, leaseMs } = options;
    const request = {
      name,
      handlers: [...handlers],
      queues: [...queues],
      capabilities: [...capabilities],
      slots,
      leaseMs,
      ...(session && { sessionId: session.sessionId, sessionToken: session.sessionToken }),
    };
    for await (const { message } of client.attach(request, { signal })) {
      onMessage();
      if (message.case === "attached") attached(message.value);
      else if (message.case === "lost") keeper().lose(message.value.leases);
      else if (message.case === "draining") return true;
    }
    return false;
  }

  return {
    async run(signal) {
      let troubled = false;
      for (let failures = 0; !signal.aborted; ) {
        stream = new AbortController();
        const silence = setTimeout(() => stream.abort(), SILENCE_MS);
        let pause = backoffMs(failures + 1);
        try {
          const draining = await follow(AbortSignal.any([signal, stream.signal]), () => {
            failures = 0;
            silence.refresh();
            if (troubled) post({ kind: "trouble", message: "attached to the mesh again" });
            troubled = false;
          });
          if (draining) pause = backoffMs(1);
          failures++;
        } catch (thrown) {
          if (signal.aborted) return;
          failures++;
          const error = readCallError(thrown);
          if (error.reason === "SESSION_CLOSED") close();
          else if (FINAL.has(error.reason) && !attachedBefore) {
            post({ kind: "refused", reason: error.reason, message: error.message, advice: error.advice });
            return;
          } else if (failures === 3) {
            troubled = true;
            post({ kind: "trouble", message: `attaching to the mesh: ${error.reason}: ${error.message}` });
          }
          pause = backoffMs(failures, error);
        } finally {
          clearTimeout(silence);
          stream.abort();
        }
        await delay(pause, undefined, { signal }).catch(() => undefined);
      }
    },
    closed(sessionId) {
      if (session?.sessionId !== sessionId) return;
      close();
      stream.abort();
    },
  };
}

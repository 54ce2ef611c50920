import { MeshError } from "@runmesh/domain/errors";
import type { Credential } from "./authenticator.ts";

/** How often the credential of a call that lasts is looked at again. */
export const RECHECK_MS = 1_500;

/** The call's answer, or UNAUTHENTICATED when its credential ends before. */
export function guardCall<T>(credential: Credential, call: Promise<T>): Promise<T> {
  if (credential.recheck === undefined) return call;
  return new Promise((resolve, reject) => {
    const stop = watch(credential, reject);
    call.then(resolve, reject).finally(stop);
  });
}

/** The stream's messages until they end, or its credential does: then it fails, and what made them is told to stop. */
export async function* guardStream<T>(credential: Credential, messages: AsyncIterable<T>): AsyncGenerator<T> {
  if (credential.recheck === undefined) {
    yield* messages;
    return;
  }
  const iterator = messages[Symbol.asyncIterator]();
  let refusal: MeshError | undefined;
  let refuse: (error: MeshError) => void = () => {};
  const stop = watch(credential, (error) => {
    refusal = error;
    refuse(error);
  });
  let finished = false;
  try {
    for (;;) {
      const next = await new Promise<IteratorResult<T>>((resolve, reject) => {
        if (refusal !== undefined) return reject(refusal);
        refuse = reject;
        iterator.next().then(resolve, reject);
      });
      if (next.done) {
        finished = true;
        return;
      }
      yield next.value;
    }
  } finally {
    stop();
    // Not awaited: a handler in the middle of a wait ends when the call's signal, which this failure aborts, wakes it.
    if (!finished) iterator.return?.().catch(() => {});
  }
}

/**
 * Looks again until it is stopped. Only a refusal ends a call: while the database cannot be asked, it goes on, since
 * nobody can revoke anything then either.
 */
function watch(credential: Credential, onRefused: (error: MeshError) => void): () => void {
  let stopped = false;
  let timer = setTimeout(look, RECHECK_MS);

  function look(): void {
    credential.recheck!().then(again, (error: unknown) => {
      if (error instanceof MeshError && error.reason === "UNAUTHENTICATED") {
        if (!stopped) onRefused(error);
      } else again();
    });
  }

  function again(): void {
    if (!stopped) timer = setTimeout(look, RECHECK_MS);
  }

  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}

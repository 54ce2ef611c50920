import { randomUUID } from "node:crypto";
import { createContextKey } from "@connectrpc/connect";

export const REQUEST_ID_HEADER = "x-request-id";

/** The id that finds a call in the logs; the server sets it before anything can fail. */
export const requestIdKey = createContextKey<string>("", { description: "the id that finds a call in the logs" });

const ACCEPTED = /^[A-Za-z0-9._:/-]{1,128}$/;

/** The caller's id when it is harmless in a header and a log, else a new one. */
export function readRequestId(given: string | null | undefined): string {
  return typeof given === "string" && ACCEPTED.test(given) ? given : randomUUID();
}

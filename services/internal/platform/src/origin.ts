import { createContextKey } from "@connectrpc/connect";

/**
 * The address at the other end of the caller's connection, set by the server that took it. What a proxy says of those
 * behind it is not believed, so behind a proxy it is the proxy's.
 */
export const originKey = createContextKey<string>("", { description: "the address that a call came from" });

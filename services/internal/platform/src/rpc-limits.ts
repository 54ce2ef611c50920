/** The largest request message, and the largest unary body (DESIGN: 4 MiB). */
export const MAX_REQUEST_BYTES = 4 * 1024 * 1024;

/** Long enough for the largest request over a slow line; one that drips slower is answered DEADLINE_EXCEEDED. */
export const BODY_TIMEOUT_MS = 60_000;

/** JSON that nests deeper is refused before it is parsed; 101 to 250 reaches the handler, which names the path. */
export const MAX_JSON_DEPTH = 250;

/**
 * protobuf counts messages, and each level of a Value is two of them (Value, then Struct or ListValue) plus one
 * for a map's entry, beneath a few levels of the request itself.
 */
export const MAX_RECURSION = MAX_JSON_DEPTH * 3 + 50;

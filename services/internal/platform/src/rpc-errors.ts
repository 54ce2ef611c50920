import { create } from "@bufbuild/protobuf";
import { durationFromMs, durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type Interceptor, type StreamResponse } from "@connectrpc/connect";
import { codeFromString } from "@connectrpc/connect/protocol-connect";
import { type ErrorDetail, ErrorDetailSchema, Reason as ProtoReason } from "@runmesh/contracts/error/v1/error_pb";
import { MeshError, REASONS, type Reason } from "@runmesh/domain/errors";
import type { Log } from "./log.ts";
import { REQUEST_ID_HEADER, readRequestId, requestIdKey } from "./request-id.ts";

/** As `violations` documents. */
const MAX_VIOLATIONS = 20;

/** What an error of the library means, which knows only codes. */
const REASON_OF_CODE: Record<Code, Reason> = {
  [Code.Canceled]: "CANCELLED",
  [Code.Unknown]: "INTERNAL",
  [Code.InvalidArgument]: "INVALID_FIELD",
  [Code.DeadlineExceeded]: "CANCELLED",
  [Code.NotFound]: "NOT_FOUND",
  [Code.AlreadyExists]: "ALREADY_EXISTS",
  [Code.PermissionDenied]: "FORBIDDEN",
  [Code.ResourceExhausted]: "OVERLOADED",
  [Code.FailedPrecondition]: "ILLEGAL_MOVE",
  [Code.Aborted]: "UNAVAILABLE",
  [Code.OutOfRange]: "INVALID_FIELD",
  [Code.Unimplemented]: "NOT_SERVED",
  [Code.Internal]: "INTERNAL",
  [Code.Unavailable]: "UNAVAILABLE",
  [Code.DataLoss]: "INTERNAL",
  [Code.Unauthenticated]: "UNAUTHENTICATED",
};

const CODES = new Map(Object.entries(REASONS).map(([reason, { code }]) => [reason, codeFromString(code)]));

/** The Connect code a reason travels with. */
export function getCode(reason: Reason): Code {
  const code = CODES.get(reason);
  if (code === undefined) throw new Error(`reason ${reason} names no Connect code`);
  return code;
}

/** The detail of an error, as it stands in the result of one item of a batch. */
export function toErrorDetail(error: MeshError, requestId: string): ErrorDetail {
  return create(ErrorDetailSchema, {
    reason: ProtoReason[error.reason],
    violations: error.violations.slice(0, MAX_VIOLATIONS).map(({ field, reason, description }) => ({
      field: wellFormed(field),
      reason: ProtoReason[reason],
      description: wellFormed(description),
    })),
    ...(error.retryAfterMs !== undefined && { retryAfter: durationFromMs(Math.ceil(error.retryAfterMs)) }),
    ...(error.lastSequence !== undefined && { lastSequence: error.lastSequence }),
    requestId,
    advice: error.advice,
  });
}

/** The error that a detail describes; a reason this version does not know reads as INTERNAL. */
export function fromErrorDetail(detail: ErrorDetail, message?: string): MeshError {
  const reason = readReason(detail.reason);
  return new MeshError(reason, message ?? detail.violations[0]?.description ?? REASONS[reason].advice, {
    violations: detail.violations.map((violation) => ({ ...violation, reason: readReason(violation.reason) })),
    ...(detail.retryAfter !== undefined && { retryAfterMs: durationMs(detail.retryAfter) }),
    ...(detail.lastSequence !== 0n && { lastSequence: detail.lastSequence }),
  });
}

function readReason(reason: ErrorDetail["reason"]): Reason {
  const name = PROTO_NAMES.get(reason);
  return name !== undefined && name in REASONS ? (name as Reason) : "INTERNAL";
}

const PROTO_NAMES = new Map<number, string>(Object.entries(ProtoReason).map(([name, number]) => [number, name]));

/** What a caller is told of any error: always a code, a reason, an advice and the request id. */
export function toConnectError(error: unknown, requestId: string): ConnectError {
  if (error instanceof MeshError) return withDetail(error.message, getCode(error.reason), error, requestId, error);
  if (error instanceof ConnectError) {
    if (error.details.length > 0) return error;
    const reason = REASON_OF_CODE[error.code] ?? "INTERNAL";
    const told = new MeshError(reason, error.rawMessage);
    const hidden = reason === "INTERNAL";
    return withDetail(hidden ? internal(requestId) : error.rawMessage, error.code, told, requestId, error);
  }
  if (isAbort(error)) {
    const told = new MeshError("CANCELLED", "the call was cancelled");
    return withDetail(told.message, Code.Canceled, told, requestId, error);
  }
  // Anything else is a bug of ours; its message may carry what callers must not see, so only the log has it.
  const told = new MeshError("INTERNAL", internal(requestId));
  return withDetail(told.message, Code.Internal, told, requestId, error);
}

function withDetail(message: string, code: Code, told: MeshError, requestId: string, cause: unknown): ConnectError {
  const detail = { desc: ErrorDetailSchema, value: toErrorDetail(told, requestId) };
  return new ConnectError(wellFormed(message), code, { [REQUEST_ID_HEADER]: requestId }, [detail], cause);
}

/** The detail in an error that came over the wire, or undefined when a proxy or another server wrote the error. */
export function findErrorDetail(error: ConnectError): ErrorDetail | undefined {
  return error.findDetails(ErrorDetailSchema)[0];
}

function internal(requestId: string): string {
  return `internal error; the logs have it under request id ${requestId}`;
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && (error.name === "AbortError" || error.name === "TimeoutError");
}

/** protobuf refuses a string with a lone surrogate, and an error about one must not fail for quoting it. */
function wellFormed(text: string): string {
  return text.toWellFormed();
}

/**
 * Server interceptor, to be the outermost: gives each call its request id, answers it in the header, and turns
 * whatever is thrown into an error with a detail. A fault of ours is logged here, once, where it first arrives.
 */
export function errorInterceptor(options: { readonly log: Log }): Interceptor {
  function convert(error: unknown, requestId: string, method: string): ConnectError {
    const told = toConnectError(error, requestId);
    if (told !== error && isFault(told.code)) options.log.error({ requestId, method, error }, "a call failed");
    return told;
  }

  async function* convertStream(response: StreamResponse, requestId: string, method: string) {
    try {
      yield* response.message;
    } catch (error) {
      throw convert(error, requestId, method);
    }
  }

  return (next) => async (request) => {
    let requestId = request.contextValues.get(requestIdKey);
    if (requestId === "") {
      requestId = readRequestId(request.header.get(REQUEST_ID_HEADER));
      request.contextValues.set(requestIdKey, requestId);
    }
    const method = `${request.service.typeName}/${request.method.name}`;
    try {
      const response = await next(request);
      response.header.set(REQUEST_ID_HEADER, requestId);
      if (!response.stream) return response;
      return { ...response, message: convertStream(response, requestId, method) };
    } catch (error) {
      throw convert(error, requestId, method);
    }
  };
}

function isFault(code: Code): boolean {
  return code === Code.Internal || code === Code.Unknown || code === Code.DataLoss;
}

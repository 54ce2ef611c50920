import type { DescMessage, DescMethod } from "@bufbuild/protobuf";
import { ConnectError, type Interceptor } from "@connectrpc/connect";
import { Reason as ProtoReason } from "@runmesh/contracts/error/v1/error_pb";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { MeshError } from "@runmesh/domain/errors";
import type { Log } from "@runmesh/platform/log";
import { principalKey } from "@runmesh/platform/principal";
import { findErrorDetail } from "@runmesh/platform/rpc-errors";
import { isReading } from "@runmesh/platform/scopes";
import { insertAudit } from "@runmesh/store/audit";
import type { Db } from "@runmesh/store/db";

/** What says something of the caller's right to the move. Overload and faults do not: nothing was decided. */
const AUDITED = new Set(["FORBIDDEN", "NOT_FOUND", "ILLEGAL_MOVE", "ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH"]);
const MAX_TARGET = 256;
/** Fields that name what a request is about, the most telling first. */
const TARGETS = ["taskId", "runId", "id", "name", "workflow", "tenant"] as const;

/**
 * Server interceptor: a mutation that is refused leaves a row with the reason. Those that are done leave theirs in
 * their own transaction; what workers call is in the attempts.
 */
export function auditRefusals({ db, log }: { readonly db: Db; readonly log: Log }): Interceptor {
  return (next) => async (request) => {
    const { method } = request;
    if (request.stream || method.parent === LeaseService || isReading(`/${method.name}`)) return next(request);
    try {
      return await next(request);
    } catch (error) {
      const result = reasonOf(error);
      const principal = request.contextValues.get(principalKey);
      if (principal !== undefined && AUDITED.has(result)) {
        const { tenantId, name, origin } = principal;
        const target = targetOf(method.input, request.message as unknown as Record<string, unknown>);
        const entry = { tenantId, principal: name, origin, action: actionOf(method), target, result };
        await insertAudit(db, entry).catch((cause: unknown) => log.warn({ error: cause }, "a refusal was not audited"));
      }
      throw error;
    }
  };
}

/** As in "run.cancel" of CancelRun. */
function actionOf(method: DescMethod): string {
  const [verb = "", ...noun] = method.name.match(/[A-Z][a-z]*/g) ?? [];
  return `${noun.join("-").toLowerCase().replace("api-key", "key")}.${verb.toLowerCase()}`;
}

function targetOf(input: DescMessage, message: Record<string, unknown>): string {
  for (const field of TARGETS) {
    const value = message[field];
    if (value === undefined || value === "" || value === 0n || input.field[field] === undefined) continue;
    const noun = field === "taskId" ? "task" : field === "runId" ? "run" : nounOf(input, field);
    return `${noun}/${String(value).replaceAll("\0", "").toWellFormed()}`.slice(0, MAX_TARGET);
  }
  return "";
}

function nounOf(input: DescMessage, field: string): string {
  if (field !== "id" && field !== "name") return field;
  const noun =
    input.name
      .replace(/Request$/, "")
      .match(/[A-Z][a-z]*/g)
      ?.slice(1)
      .join("-")
      .toLowerCase() ?? "";
  return noun.replace("api-key", "key");
}

function reasonOf(error: unknown): string {
  if (error instanceof MeshError) return error.reason;
  const reason = error instanceof ConnectError ? findErrorDetail(error)?.reason : undefined;
  return reason === undefined ? "" : (REASON_NAMES.get(reason) ?? "");
}

const REASON_NAMES = new Map<number, string>(Object.entries(ProtoReason).map(([name, number]) => [number, name]));

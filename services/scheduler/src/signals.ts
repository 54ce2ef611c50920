import type { SendSignalRequest } from "@runmesh/contracts/run/v1/run_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { exceedsUtf8, findTextFault, readName } from "@runmesh/domain/names";
import { digestOf } from "@runmesh/platform/digest";
import { readPayload } from "@runmesh/platform/payload";
import type { Principal } from "@runmesh/platform/principal";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { sendSignal } from "@runmesh/store/send-signal";
import { MAX_SIGNALS } from "@runmesh/store/signals";

const MAX_REQUEST_ID_BYTES = 128;
const FULL_RETRY_MS = 5_000;

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly wakeups: Wakeups;
}

/** Signals that people and programs send to runs. */
export class Signals {
  readonly #deps: Deps;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  async send({ tenantId, name: principal, origin }: Principal, request: SendSignalRequest): Promise<void> {
    const { runId, requestId } = request;
    const name = readName(request.name, "name");
    const payload = readPayload(request.payload, "value");
    const fault =
      findTextFault(requestId) ??
      (exceedsUtf8(requestId, MAX_REQUEST_ID_BYTES) ? "must be at most 128 bytes" : undefined);
    if (fault !== undefined) throw invalidField("request_id", fault);
    // The same id to another run is another signal (V-17).
    const digest = requestId === "" ? undefined : digestOf(`run.signal:${runId}:${requestId}`);
    const value = payload === undefined ? null : Buffer.from(payload);
    const outcome = await sendSignal(this.#deps, { tenantId, runId, name, value, digest, principal, origin });
    if (outcome.kind === "missing") throw new MeshError("NOT_FOUND", `no run ${runId}`);
    if (outcome.kind === "refused")
      throw new MeshError("ILLEGAL_MOVE", `run ${runId} has ended: it is ${outcome.state}`);
    if (outcome.kind === "full") {
      throw new MeshError("OVERLOADED", `run ${runId} keeps ${MAX_SIGNALS} signals already that nobody took`, {
        retryAfterMs: FULL_RETRY_MS,
      });
    }
    for (const route of outcome.wokenRoutes) this.#deps.wakeups.notify(`ready:${route}`);
    this.#deps.wakeups.notify(`run:${runId}`);
  }
}

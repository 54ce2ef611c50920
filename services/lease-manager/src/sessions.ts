import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { MeshError } from "@runmesh/domain/errors";
import type { Db } from "@runmesh/store/db";
import type { LoadedDefinition } from "@runmesh/store/definition-cache";
import { findSession, insertSession, resumeSession, type SessionRow } from "@runmesh/store/sessions";
import { type Abilities, canRun, type RouteTable } from "./route-table.ts";

/** A lease as this process handed it out. */
export interface HeldLease {
  readonly fence: bigint;
  readonly loaded: LoadedDefinition;
}

/** A worker's standing, as this process knows it. The database has the truth; another process may have the stream. */
export class Session {
  readonly tenantId: number;
  readonly id: bigint;
  readonly token: string;
  readonly leaseMs: number;
  readonly name: string;
  readonly abilities: Abilities;
  readonly epoch: number;
  /** Leases handed out here and not ended: what the stream tells the loss of. */
  readonly held = new Map<bigint, HeldLease>();
  usedAt = performance.now();
  /** The worker said that it stops. */
  leaves = false;
  /** Request ids of late acquires; all of them, where the session began here. */
  readonly #acquires: Set<string>;
  readonly #beganHere: boolean;
  #routeIds: number[] = [];
  #routesSeen = 0;

  constructor(tenantId: number, token: string, row: SessionRow, before: Session | "new" | undefined) {
    this.tenantId = tenantId;
    this.id = row.id;
    this.token = token;
    this.leaseMs = row.lease_ms;
    this.name = row.name;
    this.epoch = row.epoch;
    this.abilities = {
      handlers: new Set(row.handlers),
      queues: new Set(row.queues),
      capabilities: new Set(row.capabilities),
    };
    this.#beganHere = before === "new" || (before instanceof Session && before.#beganHere);
    this.#acquires = before instanceof Session ? before.#acquires : new Set();
    if (before instanceof Session) for (const [taskId, lease] of before.held) this.held.set(taskId, lease);
  }

  /** Whether an earlier acquire may have had this id, so that its leases are worth a look; notes the id. */
  repeatsAcquire(acquireId: string): boolean {
    const repeats = !this.#beganHere || this.#acquires.has(acquireId);
    this.#acquires.add(acquireId);
    if (this.#acquires.size > MAX_ACQUIRES) this.#acquires.delete(this.#acquires.values().next().value!);
    return repeats;
  }

  /** Forgets a lease that is no more; a newer one of the same task stays. */
  drop({ taskId, fence }: { readonly taskId: bigint; readonly fence: bigint }): void {
    if (this.held.get(taskId)?.fence === fence) this.held.delete(taskId);
  }

  async routeIds(table: RouteTable): Promise<readonly number[]> {
    const routes = await table.list(this.tenantId);
    if (routes.length > this.#routesSeen) {
      for (const route of routes.slice(this.#routesSeen))
        if (canRun(this.abilities, route)) this.#routeIds.push(route.id);
      this.#routesSeen = routes.length;
    }
    return this.#routeIds;
  }
}

export interface Announcement {
  readonly name: string;
  readonly handlers: readonly string[];
  readonly queues: readonly string[];
  readonly capabilities: readonly string[];
  readonly slots: number;
  readonly leaseMs: number;
}

/** An acquire is repeated within seconds; a worker makes some hundreds a second at most. */
const MAX_ACQUIRES = 2_000;
const IDLE_MS = 20 * 60_000;
const MAX_SESSIONS = 100_000;

/** The sessions this process has to do with. */
export class Sessions {
  readonly #db: Db;
  readonly #known = new Map<bigint, Session>();

  constructor(db: Db) {
    this.#db = db;
  }

  async open(tenantId: number, announced: Announcement): Promise<Session> {
    const token = randomBytes(24).toString("base64url");
    const row = await insertSession(this.#db, { tenantId, tokenHash: hashToken(token), ...announced });
    return this.#keep(new Session(tenantId, token, row, "new"));
  }

  /** Takes a session up again with a new epoch. Throws SESSION_CLOSED. */
  async resume(tenantId: number, sessionId: bigint, token: string, announced: Announcement): Promise<Session> {
    const tokenHash = hashToken(token);
    const row = await resumeSession(this.#db, { tenantId, sessionId, tokenHash, ...announced });
    if (row === undefined) throw closed(sessionId);
    const session = new Session(tenantId, token, row, this.#known.get(sessionId));
    return this.#keep(session);
  }

  /** The session that a call names, by its token. Throws SESSION_CLOSED. */
  async get(tenantId: number, sessionId: bigint, token: string): Promise<Session> {
    const known = this.#known.get(sessionId);
    if (known !== undefined && known.tenantId === tenantId && isSame(known.token, token)) {
      known.usedAt = performance.now();
      return known;
    }
    const row = await findSession(this.#db, { tenantId, sessionId, tokenHash: hashToken(token) });
    if (row === undefined) throw closed(sessionId);
    return this.#keep(new Session(tenantId, token, row, undefined));
  }

  /** Forgets a session that is closed in the database. */
  forget(sessionId: bigint): void {
    this.#known.delete(sessionId);
  }

  #keep(session: Session): Session {
    if (this.#known.size >= MAX_SESSIONS) this.#forgetIdle();
    this.#known.set(session.id, session);
    return session;
  }

  #forgetIdle(): void {
    const before = performance.now() - IDLE_MS;
    for (const [id, session] of this.#known) if (session.usedAt < before) this.#known.delete(id);
    if (this.#known.size < MAX_SESSIONS) return;
    throw new MeshError("OVERLOADED", `this process keeps ${MAX_SESSIONS} worker sessions already`, {
      retryAfterMs: 10_000,
    });
  }
}

const hashToken = (token: string): Buffer => createHash("sha256").update(token).digest();

function isSame(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

const closed = (sessionId: bigint) =>
  new MeshError("SESSION_CLOSED", `session ${sessionId} is unknown or closed, or the token is another's`);

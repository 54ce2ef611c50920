import type { ServiceImpl } from "@connectrpc/connect";
import type { Quota } from "@runmesh/contracts/tenant/v1/tenant_pb";
import type { TenantService } from "@runmesh/contracts/tenant/v1/tenant_service_pb";
import { parseDuration } from "@runmesh/domain/duration";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { checkTexts, readName } from "@runmesh/domain/names";
import { readPageToken, writePageToken } from "@runmesh/domain/page-token";
import { readPageSize } from "@runmesh/platform/page-size";
import { getPrincipal, type Principal, SYSTEM_TENANT_ID } from "@runmesh/platform/principal";
import { readScopes } from "@runmesh/platform/scopes";
import { readTimestamp } from "@runmesh/platform/timestamp";
import { listApiKeys } from "@runmesh/store/api-keys";
import { insertAudit, listAudit } from "@runmesh/store/audit";
import type { Db } from "@runmesh/store/db";
import { putQuota } from "@runmesh/store/tenant-quotas";
import { findTenant, insertTenant, listTenants, type TenantRow } from "@runmesh/store/tenants";
import type { Keys } from "./keys.ts";
import { readRoles, writeAudit, writeKey, writePrincipal, writeTenant } from "./tenant-message.ts";

export interface TenantServiceDeps {
  readonly db: Db;
  readonly keys: Keys;
  /** Told the id of a key that was moved: what is remembered of it is old. */
  readonly onMoved: (keyId: string) => void;
}

const MAX_OVERLAP_MS = 7 * 86_400_000;
const DEFAULT_OVERLAP_MS = 3_600_000;
const TENANT_NAME = /^[a-z][a-z0-9-]{0,62}$/;

/** Tenants, their keys and their audit. */
export function createTenantService({ db, keys, onMoved }: TenantServiceDeps): ServiceImpl<typeof TenantService> {
  async function getTenant(name: string): Promise<TenantRow> {
    const row = TENANT_NAME.test(name) ? await findTenant(db, { name }) : undefined;
    if (row === undefined) throw new MeshError("NOT_FOUND", "no such tenant");
    return row;
  }

  async function auditTenant(tx: Db, { tenantId, name, origin }: Principal, action: string, target: string) {
    await insertAudit(tx, { tenantId, principal: name, origin, action, target: `tenant/${target}`, result: "done" });
  }

  /** The tenant that keys are made in. Another than the caller's is known to the system's admins only. */
  async function getKeyTenant(principal: Principal, name: string): Promise<number> {
    if (name === "" || name === principal.tenant) return principal.tenantId;
    if (principal.tenantId !== SYSTEM_TENANT_ID) throw new MeshError("NOT_FOUND", "no such tenant");
    return (await getTenant(name)).id;
  }

  return {
    getPrincipal: (_request, context) => ({ principal: writePrincipal(getPrincipal(context)) }),

    async createTenant(request, context) {
      const { name } = request;
      if (!TENANT_NAME.test(name)) throw invalidField("name", "must be 1 to 63 of [a-z0-9-], a letter first");
      const quota = readQuota(request.quota);
      await db.transaction(async (tx) => {
        const created = await insertTenant(tx, { name });
        if (created === undefined) throw new MeshError("ALREADY_EXISTS", `a tenant named ${name} is there`);
        if (request.quota !== undefined) await putQuota(tx, { tenantId: created.id, ...quota });
        await auditTenant(tx, getPrincipal(context), "tenant.create", name);
      });
      return { tenant: writeTenant(await getTenant(name)) };
    },

    async listTenants(request) {
      const limit = readPageSize(request.pageSize);
      const [afterName = ""] = readPageToken(request.pageToken, "page_token", "text") ?? [];
      const rows = await listTenants(db, { afterName, limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        tenants: page.map(writeTenant),
        nextPageToken: rows.length > limit ? writePageToken([page.at(-1)!.name]) : "",
      };
    },

    async setQuota(request, context) {
      const { id: tenantId, name } = await getTenant(request.tenant);
      const quota = readQuota(request.quota);
      await db.transaction(async (tx) => {
        await putQuota(tx, { tenantId, ...quota });
        await auditTenant(tx, getPrincipal(context), "quota.set", name);
      });
      return { tenant: writeTenant(await getTenant(name)) };
    },

    async createApiKey(request, context) {
      const principal = getPrincipal(context);
      const wanted = {
        name: readName(request.name, "name"),
        roles: readRoles(request.roles, "roles"),
        scopes: readScopes(request.scopes, "scopes"),
        expiresAt: readTimestamp(request.expireTime, "expire_time"),
      };
      if (wanted.expiresAt !== undefined && wanted.expiresAt.getTime() <= Date.now()) {
        throw invalidField("expire_time", "must be in the future");
      }
      const tenantId = await getKeyTenant(principal, request.tenant);
      const { row, text } = await keys.create(tenantId, wanted, moverOf(principal, tenantId));
      return { key: writeKey(row), secret: text };
    },

    async listApiKeys(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const [beforeId = ""] = readPageToken(request.pageToken, "page_token", "text") ?? [];
      const rows = await listApiKeys(db, { tenantId, beforeId, limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        keys: page.map(writeKey),
        nextPageToken: rows.length > limit ? writePageToken([page.at(-1)!.id]) : "",
      };
    },

    async rotateApiKey(request, context) {
      const principal = getPrincipal(context);
      const overlapMs = request.overlap === "" ? DEFAULT_OVERLAP_MS : readOverlap(request.overlap);
      const { row, text } = await keys.rotate(principal.tenantId, readKeyId(request.id), overlapMs, principal);
      onMoved(row.id);
      return { key: writeKey(row), secret: text };
    },

    async revokeApiKey(request, context) {
      const principal = getPrincipal(context);
      const row = await keys.revoke(principal.tenantId, readKeyId(request.id), principal);
      onMoved(row.id);
      return { key: writeKey(row) };
    },

    async listAudit(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const [before = "9223372036854775807"] = readPageToken(request.pageToken, "page_token", "id") ?? [];
      const { principal = "", action = "", target = "", after, before: until } = request.filter ?? {};
      checkTexts({ "filter.principal": principal, "filter.action": action, "filter.target": target });
      const filter = {
        principal,
        action,
        target,
        after: readTimestamp(after, "filter.after"),
        before: readTimestamp(until, "filter.before"),
      };
      const rows = await listAudit(db, { tenantId, filter, beforeId: BigInt(before), limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        entries: page.map(writeAudit),
        nextPageToken: rows.length > limit ? writePageToken([String(page.at(-1)!.id)]) : "",
      };
    },
  };
}

/** In another tenant's audit the mover is named with its own. */
function moverOf(principal: Principal, tenantId: number) {
  const { tenant, name, origin, scopes } = principal;
  return { name: tenantId === principal.tenantId ? name : `${tenant}/${name}`, origin, scopes };
}

function readKeyId(id: string): string {
  if (/^[0-9a-f]{16}$/.test(id)) return id;
  throw new MeshError("NOT_FOUND", "no such key");
}

function readOverlap(text: string): number {
  const read = parseDuration(text);
  if (!read.ok) throw invalidField("overlap", read.why);
  if (read.ms > MAX_OVERLAP_MS) throw invalidField("overlap", "must be at most 7d");
  return read.ms;
}

const MAX_RATE = 1_000_000;
const MAX_KEEP_DAYS = 36_500;

function readQuota(quota: Quota | undefined) {
  return {
    requestsPerSecond: readLimit(quota?.requestsPerSecond, "quota.requests_per_second", MAX_RATE),
    startsPerSecond: readLimit(quota?.startsPerSecond, "quota.starts_per_second", MAX_RATE),
    keepDays: readLimit(quota?.keepDays, "quota.keep_days", MAX_KEEP_DAYS),
  };
}

function readLimit(limit: number | undefined, field: string, most: number): number | undefined {
  if (limit !== undefined && limit > most) throw invalidField(field, `must be at most ${most}`);
  return limit || undefined;
}

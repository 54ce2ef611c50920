import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type ApiKey, ApiKeySchema } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { toShape } from "./json-shape.ts";
import type { Printer } from "./output.ts";
import { formatRoles } from "./role-option.ts";
import { type Column, formatRecord } from "./table.ts";
import { formatTime } from "./times.ts";

export const keyShape = (key: ApiKey): Record<string, unknown> => toShape(ApiKeySchema, key);

export const KEY_COLUMNS: readonly Column<ApiKey>[] = [
  { title: "ID", read: (key) => key.id },
  { title: "NAME", read: (key) => key.name },
  { title: "ROLES", read: (key) => formatRoles(key.roles) },
  { title: "SCOPES", read: (key) => key.scopes.join(" ") },
  { title: "STATE", read: stateOfKey },
  { title: "CREATED (UTC)", read: (key) => formatTime(key.createTime) },
  { title: "USED (UTC)", read: (key) => formatTime(key.lastUsedTime) },
  { title: "EXPIRES (UTC)", read: (key) => formatTime(key.expireTime) },
];

function stateOfKey(key: ApiKey): string {
  if (key.revokeTime !== undefined) return "revoked";
  return key.expireTime !== undefined && timestampMs(key.expireTime) <= Date.now() ? "expired" : "works";
}

/** A key with the only sight of its secret. The secret alone is the result: it can be piped into a store of secrets. */
export function printSecret(printer: Printer, key: ApiKey, secret: string): void {
  printer.note(
    formatRecord([
      ["key", key.id],
      ["name", key.name],
      ["roles", formatRoles(key.roles)],
      ["scopes", key.scopes.join(" ")],
      ["expires", formatTime(key.expireTime)],
    ]).join("\n"),
  );
  printer.note("This is shown once and kept nowhere; RUNMESH_API_KEY takes it:");
  printer.one({ key: keyShape(key), secret }, () => [secret]);
}

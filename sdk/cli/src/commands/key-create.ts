import { resolve } from "node:path";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { ApiKeySchema, Role } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { type Command, InvalidArgumentError } from "commander";
import { findEmbeddedDatabase } from "../embedded-database.ts";
import type { Host } from "../host.ts";
import { printSecret } from "../key-view.ts";
import { createPrinter } from "../output.ts";
import { readRoles } from "../role-option.ts";
import { openSession } from "../session.ts";
import { loadMaintenance } from "../standalone-package.ts";
import { UsageError } from "../usage-error.ts";
import { DEFAULT_DATA, findDatabaseUrl } from "./dev.ts";

interface CreateOptions {
  readonly role?: readonly Role[];
  readonly scope: readonly string[];
  readonly expires?: number;
  readonly tenant: string;
  readonly bootstrap?: true;
  readonly force?: true;
  readonly data?: string;
  readonly databaseUrl?: string;
}

export function addKeyCreate(group: Command, host: Host): void {
  group
    .command("create")
    .argument("<name>", "as in billing-worker")
    .description("make a key; its secret is printed once, alone on stdout")
    .option("--role <roles>", "viewer, operator, developer, worker, admin; may be given again", readRoles)
    .option("--scope <scope>", "narrow the roles, as in run or run:read; may be given again", readScope, [])
    .option("--expires <time>", "when it ends, as in 90d or 2027-01-31T00:00:00Z (default: never)", readExpiry)
    .option("--tenant <name>", "another tenant's, made by an admin of the system", "")
    .option("--bootstrap", "the first admin's key, made in the database itself")
    .option("--force", "with --bootstrap: although an admin's key works, since all of them are lost")
    .option("--data <folder>", `with --bootstrap: the folder of the mesh (default: ${DEFAULT_DATA})`)
    .option("--database-url <url>", "with --bootstrap: the PostgreSQL of the mesh (RUNMESH_DATABASE_URL)")
    .action(async (name: string, options: CreateOptions, command: Command) => {
      if (options.bootstrap) await bootstrap(name, options, command, host);
      else await createKey(name, options, command, host);
    });
}

async function createKey(name: string, options: CreateOptions, command: Command, host: Host): Promise<void> {
  if (options.role === undefined) {
    throw new UsageError("which roles?", { advice: "Give --role, as in --role worker; docs/roles.md has the table." });
  }
  const { printer, call, mesh } = openSession(command, host);
  const { tenants } = await mesh();

  const { key, secret } = await tenants.createApiKey(
    {
      name,
      roles: [...options.role],
      scopes: [...options.scope],
      tenant: options.tenant,
      ...(options.expires !== undefined && { expireTime: timestampFromMs(options.expires) }),
    },
    call,
  );

  printSecret(printer, key!, secret);
}

/** Whoever reaches the database has everything already, so this needs no key. */
async function bootstrap(name: string, options: CreateOptions, command: Command, host: Host): Promise<void> {
  if (
    options.role !== undefined ||
    options.scope.length > 0 ||
    options.expires !== undefined ||
    options.tenant !== ""
  ) {
    throw new UsageError(
      "--bootstrap makes an admin's key of the tenant default, and takes no roles, scopes or expiry",
    );
  }
  const printer = createPrinter(host.terminal, command.optsWithGlobals<{ json?: boolean }>().json === true);
  const databaseUrl = findDatabaseUrl(options, host) ?? getEmbedded(resolve(options.data ?? DEFAULT_DATA));
  const keySecret = host.env.RUNMESH_KEY_SECRET || undefined;
  const { bootstrapKey } = await loadMaintenance();

  const made = await bootstrapKey({
    databaseUrl,
    name,
    force: options.force === true,
    ...(keySecret !== undefined && { keySecret }),
  });

  const { id, secret } = made;
  printSecret(printer, create(ApiKeySchema, { id, name: made.name, roles: [Role.ADMIN] }), secret);
}

function getEmbedded(folder: string): string {
  const url = findEmbeddedDatabase(folder);
  if (url !== undefined) return url;
  throw new UsageError(`no mesh is up on ${folder}`, {
    advice: "Start it with `runmesh start` first, or name the database with --database-url.",
  });
}

const readScope = (text: string, before: readonly string[]): string[] => [...before, ...text.split(",")];

const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A time, or how long from now. */
function readExpiry(text: string): number {
  const [, count, unit] = /^([0-9]{1,6})([mhd])$/.exec(text) ?? [];
  const at = count === undefined ? Date.parse(text) : Date.now() + Number(count) * UNITS[unit!]!;
  if (Number.isFinite(at)) return at;
  throw new InvalidArgumentError("A time is given as 90d, 12h, 30m, or as 2027-01-31T00:00:00Z.");
}

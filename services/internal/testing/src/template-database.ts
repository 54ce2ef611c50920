import { ensureDatabase } from "@runmesh/store/migrate";
import pg from "pg";

const TEMPLATE = "runmesh_template";

/** Makes the database that the others are copied from, and closes it: a template must have no connections. */
export async function createTemplate(serverUrl: string, fill: (url: string) => Promise<void>): Promise<void> {
  const url = databaseUrl(serverUrl, TEMPLATE);
  await ensureDatabase(url);
  await fill(url);
  await execute(serverUrl, `ALTER DATABASE ${TEMPLATE} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false`);
}

/** A copy of the template; an empty database when `empty`. */
export async function createTestDatabase(serverUrl: string, name: string, { empty = false } = {}): Promise<string> {
  const template = empty ? "template0" : TEMPLATE;
  await execute(serverUrl, `CREATE DATABASE ${pg.escapeIdentifier(name)} TEMPLATE ${template}`);
  return databaseUrl(serverUrl, name);
}

/** Connections that a test left open are ended. */
export async function dropTestDatabase(serverUrl: string, name: string): Promise<void> {
  await execute(serverUrl, `DROP DATABASE IF EXISTS ${pg.escapeIdentifier(name)} WITH (FORCE)`);
}

function databaseUrl(serverUrl: string, name: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}

async function execute(serverUrl: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl(serverUrl, "postgres") });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}

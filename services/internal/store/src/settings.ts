import type { Db } from "./db.ts";

/** The value of a name: the one that is there, or the one offered. Whoever comes first decides. */
export async function keepSetting(db: Db, p: { name: string; offered: string }): Promise<string> {
  await db.rows("offer_setting", "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING", [
    p.name,
    p.offered,
  ]);
  const { value } = await db.one<{ value: string }>("get_setting", "SELECT value FROM setting WHERE name = $1", [
    p.name,
  ]);
  return value;
}

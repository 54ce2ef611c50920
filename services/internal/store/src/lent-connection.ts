import { createHash } from "node:crypto";
import { MeshError } from "@runmesh/domain/errors";
import type pg from "pg";
import { isLost } from "./pool.ts";
import { classifyStoreError, unavailable } from "./store-errors.ts";

/** One connection of the pool while it is lent out. It goes back once, whole or to be thrown away. */
export class LentConnection {
  readonly #client: pg.PoolClient;
  #broken = false;
  #released = false;

  private constructor(client: pg.PoolClient) {
    this.#client = client;
  }

  static async from(pool: pg.Pool): Promise<LentConnection> {
    try {
      return new LentConnection(await pool.connect());
    } catch (error) {
      // A server's own refusal (a wrong password, no such database) is told as it is; all else is an unreachable server.
      throw classifyStoreError(error, true);
    }
  }

  get broken(): boolean {
    return this.#broken;
  }

  /** An empty `name` leaves the statement unnamed. After `silenceMs` without an answer the network is taken for dead. */
  async query(name: string, text: string, params: readonly unknown[], silenceMs: number): Promise<unknown[]> {
    if (this.#released) throw unavailable(undefined, "The connection was given up.");
    const silence = setTimeout(() => this.destroy(), silenceMs);
    try {
      const config: pg.QueryConfig = { text, values: params as unknown[] };
      if (name !== "") config.name = statementName(name, text);
      const result = await this.#client.query<Record<string, unknown>>(config);
      return result.rows;
    } catch (error) {
      const classified = classifyStoreError(error, this.#broken || isLost(this.#client));
      if (classified instanceof MeshError) this.#broken = true;
      throw classified;
    } finally {
      clearTimeout(silence);
    }
  }

  /** Gives the connection back; a broken one is closed instead. */
  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#client.release(this.#broken);
  }

  /** Closes the connection, whatever runs on it: the server rolls back. */
  destroy(): void {
    this.#broken = true;
    this.release();
  }
}

/** Bounds the memory of a program that would build its texts; those of the mesh are a few hundred constants. */
const MAX_REMEMBERED_TEXTS = 2_000;
const namesByText = new Map<string, string>();

/** The name and a digest of the text: two texts under one name would silently run the first. */
function statementName(name: string, text: string): string {
  const known = namesByText.get(text);
  if (known?.startsWith(name)) return known;
  if (namesByText.size >= MAX_REMEMBERED_TEXTS) namesByText.clear();
  const full = `${name}_${createHash("sha256").update(text).digest("base64url").slice(0, 10)}`;
  namesByText.set(text, full);
  return full;
}

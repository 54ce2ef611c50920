import { setTimeout as sleep } from "node:timers/promises";
import { MeshError } from "@runmesh/domain/errors";
import type pg from "pg";
import { LentConnection } from "./lent-connection.ts";
import { createPool, type PoolOptions, TIMEOUTS } from "./pool.ts";
import { isRetryable } from "./store-errors.ts";

/** Statements on a pool, or on the one connection of a transaction. */
export interface Db {
  /** A statement that fails ends the whole transaction, or is undone with its savepoint. */
  readonly isTransaction: boolean;
  /**
   * `name` is that of the prepared statement; a digest of `text` is added, so texts cannot be taken for each other. On a
   * pool it is run again where the server chose it as the victim of a deadlock, as a transaction is.
   */
  rows<T>(name: string, text: string, params: readonly unknown[]): Promise<T[]>;
  /** The one row. None, or more than one, is a bug of the statement. */
  one<T>(name: string, text: string, params: readonly unknown[]): Promise<T>;
  /** The one row, if there is one. */
  find<T>(name: string, text: string, params: readonly unknown[]): Promise<T | undefined>;
  /**
   * Runs `work` in a transaction, again when the server chose it as the victim of a deadlock or a serialization
   * failure: `work` must have no other effects. Within a transaction it is a savepoint. An aborted `signal` rolls back.
   */
  transaction<T>(work: (tx: Db) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /** Waits for what is running, then closes the connections. */
  close(): Promise<void>;
}

export interface TransactionOptions {
  readonly signal?: AbortSignal;
}

const MAX_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 4;
/** Beyond the server's own timeout nothing is to be expected of a connection. */
const SILENCE_GRACE_MS = 3_000;

export function openDb(options: PoolOptions): Db {
  return new PoolDb(createPool(options), options);
}

interface StatementSettings {
  readonly named: boolean;
  readonly silenceMs: number;
}

class PoolDb implements Db {
  readonly isTransaction = false;
  readonly #pool: pg.Pool;
  readonly #settings: StatementSettings;
  #closed: Promise<void> | undefined;

  constructor(pool: pg.Pool, options: PoolOptions) {
    this.#pool = pool;
    this.#settings = {
      named: options.preparedStatements ?? true,
      silenceMs: TIMEOUTS[options.purpose].statementMs + SILENCE_GRACE_MS,
    };
  }

  rows<T>(name: string, text: string, params: readonly unknown[]): Promise<T[]> {
    return repeatVictim(async () => {
      const connection = await LentConnection.from(this.#pool);
      try {
        return await runStatement<T>(connection, this.#settings, name, text, params);
      } finally {
        connection.release();
      }
    });
  }

  async one<T>(name: string, text: string, params: readonly unknown[]): Promise<T> {
    return onlyRow(name, await this.rows<T>(name, text, params));
  }

  async find<T>(name: string, text: string, params: readonly unknown[]): Promise<T | undefined> {
    return atMostOneRow(name, await this.rows<T>(name, text, params));
  }

  transaction<T>(work: (tx: Db) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    return repeatVictim(() => this.#attemptTransaction(work, options.signal));
  }

  close(): Promise<void> {
    this.#closed ??= this.#pool.end();
    return this.#closed;
  }

  async #attemptTransaction<T>(work: (tx: Db) => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    refuseAborted(signal);
    const connection = await LentConnection.from(this.#pool);
    const control = (text: string) => connection.query("", text, [], this.#settings.silenceMs);
    const giveUp = () => connection.destroy();
    signal?.addEventListener("abort", giveUp, { once: true });
    try {
      await control("BEGIN");
      const result = await work(new TransactionDb(connection, this.#settings, 1));
      // Once COMMIT is sent the outcome is the server's: an abort no longer tears the connection down.
      signal?.removeEventListener("abort", giveUp);
      refuseAborted(signal);
      await control("COMMIT");
      return result;
    } catch (error) {
      if (connection.broken && signal?.aborted) throw cancelled(error);
      // The error that led here is the one to report, and a connection that cannot roll back is thrown away.
      if (!connection.broken) await control("ROLLBACK").catch(giveUp);
      throw error;
    } finally {
      signal?.removeEventListener("abort", giveUp);
      connection.release();
    }
  }
}

class TransactionDb implements Db {
  readonly isTransaction = true;
  readonly #connection: LentConnection;
  readonly #settings: StatementSettings;
  readonly #depth: number;

  constructor(connection: LentConnection, settings: StatementSettings, depth: number) {
    this.#connection = connection;
    this.#settings = settings;
    this.#depth = depth;
  }

  rows<T>(name: string, text: string, params: readonly unknown[]): Promise<T[]> {
    return runStatement<T>(this.#connection, this.#settings, name, text, params);
  }

  async one<T>(name: string, text: string, params: readonly unknown[]): Promise<T> {
    return onlyRow(name, await this.rows<T>(name, text, params));
  }

  async find<T>(name: string, text: string, params: readonly unknown[]): Promise<T | undefined> {
    return atMostOneRow(name, await this.rows<T>(name, text, params));
  }

  async transaction<T>(work: (tx: Db) => Promise<T>): Promise<T> {
    const savepoint = `level_${this.#depth}`;
    const control = (text: string) => this.#connection.query("", text, [], this.#settings.silenceMs);
    await control(`SAVEPOINT ${savepoint}`);
    try {
      const result = await work(new TransactionDb(this.#connection, this.#settings, this.#depth + 1));
      await control(`RELEASE SAVEPOINT ${savepoint}`);
      return result;
    } catch (error) {
      if (!this.#connection.broken) await control(`ROLLBACK TO SAVEPOINT ${savepoint}`);
      throw error;
    }
  }

  close(): Promise<void> {
    throw new Error("A transaction ends with its work; it is not closed.");
  }
}

/** Nothing of what the server ended to let another go on stands, so it is done again. */
async function repeatVictim<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (!isRetryable(error) || attempt === MAX_ATTEMPTS) throw error;
      await sleep(FIRST_BACKOFF_MS * 2 ** attempt * Math.random());
    }
  }
}

async function runStatement<T>(
  connection: LentConnection,
  settings: StatementSettings,
  name: string,
  text: string,
  params: readonly unknown[],
): Promise<T[]> {
  const rows = await connection.query(settings.named ? name : "", text, params, settings.silenceMs);
  // The statement's author names its columns; nothing at run time could check them better than a test does.
  return rows as T[];
}

function onlyRow<T>(name: string, rows: readonly T[]): T {
  const row = atMostOneRow(name, rows);
  if (row === undefined) throw new Error(`${name}: one row expected, none came`);
  return row;
}

function atMostOneRow<T>(name: string, rows: readonly T[]): T | undefined {
  if (rows.length > 1) throw new Error(`${name}: one row expected, ${rows.length} came`);
  return rows[0];
}

function refuseAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw cancelled(signal.reason);
}

function cancelled(cause: unknown): MeshError {
  return new MeshError("CANCELLED", "The transaction was given up and rolled back.", { cause });
}

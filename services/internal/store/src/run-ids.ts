import type { Db } from "./db.ts";

const BLOCK = 256n;
/** What is left of a block after this time is not used: retention drops the partitions of ids given out a day ago. */
const BLOCK_MS = 3_600_000;

/** Gives out run ids that rise, from blocks of 256 taken from the database with their partitions made sure of. */
export class RunIds {
  readonly #db: Db;
  #next = 0n;
  #end = 0n;
  #takenAt = 0;
  #taking: Promise<void> | undefined;

  constructor(db: Db) {
    this.#db = db;
  }

  async take(count: number): Promise<bigint[]> {
    const ids: bigint[] = [];
    if (performance.now() - this.#takenAt > BLOCK_MS) this.#next = this.#end;
    while (ids.length < count) {
      if (this.#next === this.#end) {
        this.#taking ??= this.#takeBlock().finally(() => {
          this.#taking = undefined;
        });
        await this.#taking;
      }
      while (ids.length < count && this.#next < this.#end) ids.push(this.#next++);
    }
    return ids;
  }

  async #takeBlock(): Promise<void> {
    const { first } = await this.#db.one<{ first: bigint }>(
      "take_run_id_block",
      "SELECT take_run_id_block() AS first",
      [],
    );
    this.#takenAt = performance.now();
    this.#next = first;
    this.#end = first + BLOCK;
  }
}

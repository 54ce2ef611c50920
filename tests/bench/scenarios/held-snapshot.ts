import pg from "pg";
import { rounded } from "../statistics.ts";
import { type MeshSubject, openMesh } from "../subjects/mesh-subject.ts";

export interface HeldSnapshotFigures {
  readonly tasks: number;
  /** Of each fifth of the tasks. */
  readonly freePerSecond: readonly number[];
  readonly heldPerSecond: readonly number[];
  /** Time to drain all, with the snapshot held over without. Target: at most 2. */
  readonly factor: number;
}

const ROUNDS = 5;

/** Drains in rounds, first as usual, then while another session holds a snapshot, so that no dead row can go. */
export async function measureHeldSnapshot(tasks: number): Promise<HeldSnapshotFigures> {
  const subject = await openMesh();
  const holder = new pg.Client({ connectionString: subject.cluster.url, application_name: "holder" });
  try {
    const count = Math.ceil(tasks / ROUNDS);
    await drainRound(subject, Math.min(2_000, count));
    const free = await drainRounds(subject, count);
    await subject.cluster.settle();

    await holder.connect();
    await holder.query("SET idle_in_transaction_session_timeout = 0");
    await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    // A statement takes the snapshot, and a transaction id keeps the horizon as a writer would.
    await holder.query("SELECT txid_current()");
    const held = await drainRounds(subject, count);
    await holder.query("ROLLBACK");

    const sum = (all: readonly number[]) => all.reduce((total, ms) => total + ms, 0);
    const rates = (all: readonly number[]) => all.map((ms) => rounded((count / ms) * 1_000));
    return {
      tasks,
      freePerSecond: rates(free),
      heldPerSecond: rates(held),
      factor: rounded(sum(held) / sum(free)),
    };
  } finally {
    await holder.end();
    await subject.stop();
  }
}

async function drainRounds(subject: MeshSubject, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) times.push(await drainRound(subject, count));
  return times;
}

async function drainRound(subject: MeshSubject, count: number): Promise<number> {
  const load = { count, batch: 500, inFlight: 2, slots: 100, prefetch: 500 };
  await subject.submit!(load);
  await subject.beginDrain!(load);
  const startedAt = performance.now();
  await subject.drain!(load);
  const ms = performance.now() - startedAt;
  await subject.check!(load);
  return ms;
}

import pg from "pg";
import { askDoctor } from "../ask-doctor.ts";
import { rounded } from "../statistics.ts";
import { type MeshSubject, openMesh } from "../subjects/mesh-subject.ts";
import { within } from "../within.ts";

export interface HeldSnapshotFigures {
  readonly tasks: number;
  /** Of each fifth of the tasks. */
  readonly freePerSecond: readonly number[];
  readonly heldPerSecond: readonly number[];
  /** Time to drain all, with the snapshot held over without. Target: at most 2. */
  readonly factor: number;
  readonly doctor: readonly string[];
}

type Say = (line: string) => void;

const ROUNDS = 5;
/** Of a round, at a twentieth of the usual speed. */
const ROUND_TIMEOUT_MS = 120_000;

/** Drains in rounds, first as usual, then while another session holds a snapshot, so that no dead row can go. */
export async function measureHeldSnapshot(tasks: number, say: Say): Promise<HeldSnapshotFigures> {
  const subject = await openMesh();
  const holder = new pg.Client({ connectionString: subject.cluster.url, application_name: "holder" });
  try {
    const count = Math.ceil(tasks / ROUNDS);
    await drainRound(subject, Math.min(2_000, count));
    const free = await drainRounds(subject, count, (line) => say(`  free: ${line}`));
    await subject.cluster.settle();

    await holder.connect();
    await holder.query("SET idle_in_transaction_session_timeout = 0");
    await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    // A statement takes the snapshot, and a transaction id keeps the horizon as a writer would.
    await holder.query("SELECT txid_current()");
    const held = await drainRounds(subject, count, (line) => say(`  held: ${line}`));
    await holder.query("ROLLBACK");

    const sum = (all: readonly number[]) => all.reduce((total, ms) => total + ms, 0);
    const rates = (all: readonly number[]) => all.map((ms) => rounded((count / ms) * 1_000));
    return {
      tasks,
      freePerSecond: rates(free),
      heldPerSecond: rates(held),
      factor: rounded(sum(held) / sum(free)),
      doctor: await askDoctor(subject),
    };
  } finally {
    await holder.end();
    await subject.stop();
  }
}

async function drainRounds(subject: MeshSubject, count: number, say: Say): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const ms = await drainRound(subject, count);
    say(`${count} tasks drained in ${ms.toFixed(0)} ms`);
    times.push(ms);
  }
  return times;
}

async function drainRound(subject: MeshSubject, count: number): Promise<number> {
  const load = { count, batch: 500, inFlight: 2, slots: 100, prefetch: 500 };
  await within(ROUND_TIMEOUT_MS, `starting ${count} runs`, subject.submit!(load));
  await subject.beginDrain!(load);
  const startedAt = performance.now();
  await within(ROUND_TIMEOUT_MS, `draining ${count} tasks`, subject.drain!(load));
  const ms = performance.now() - startedAt;
  await subject.check!(load);
  return ms;
}

import type { Child } from "../child.ts";
import type { Cluster } from "../cluster.ts";
import type { CpuSource } from "../cpu-meter.ts";

export interface DrainLoad {
  readonly count: number;
  readonly batch: number;
  readonly inFlight: number;
  readonly slots: number;
  /** Leases held ahead of the slots, where the system can be told. */
  readonly prefetch: number;
}

/** What is measured: a system on a PostgreSQL of its own. What it cannot do is missing. */
export interface Subject {
  readonly name: string;
  readonly cluster: Cluster;
  /** Its processes by role, the database's among them. */
  readonly processes: Readonly<Record<string, CpuSource>>;
  submit?(load: DrainLoad): Promise<void>;
  /** Brings up what works off, where that is apart from working: its boot is not measured. */
  beginDrain?(load: DrainLoad): Promise<void>;
  /** Works off what was submitted, until every trace of it but its history is gone. */
  drain?(load: DrainLoad): Promise<void>;
  /** After a drain: throws when the system did not do what was asked. */
  check?(load: DrainLoad): Promise<void>;
  /** Around the measures below: whatever does the work is up. */
  beginWork?(slots: number): Promise<void>;
  endWork?(): Promise<void>;
  chains?(load: { runs: number; inFlight: number }): Promise<void>;
  fanOut?(width: number): Promise<number>;
  latency?(count: number): Promise<number[]>;
  /** Times of chains under each kind of limit. */
  limits?(load: { runs: number; inFlight: number }): Promise<Record<string, number[]>>;
  stop(): Promise<void>;
}

export async function stopAll(children: readonly Child[], cluster: Cluster): Promise<void> {
  for (const child of children) {
    await child.call("stop").catch((error: unknown) => console.error(error));
    await child.stop();
  }
  await cluster.stop();
}

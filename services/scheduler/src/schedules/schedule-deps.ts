import type { Log } from "@runmesh/platform/log";
import type { Wakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import type { RunIds } from "@runmesh/store/run-ids";
import type { OutboxGauge } from "../outbox-gauge.ts";
import type { RunMoves } from "../run-moves.ts";

/** What every part of the schedules works with. */
export interface ScheduleDeps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  /** As `definitions`, on a pool apart from `db`: a transaction on `db` asks for them while it holds its connection. */
  readonly runIds: RunIds;
  readonly moves: RunMoves;
  readonly gauge: OutboxGauge;
  readonly wakeups: Wakeups;
  readonly log: Log;
}

import { toEventMessage } from "@runmesh/bus/event-message";
import { EventNameReader } from "@runmesh/bus/event-names";
import type { Event } from "@runmesh/contracts/event/v1/event_pb";
import type { Db } from "@runmesh/store/db";
import { listEvents } from "@runmesh/store/run-history";

/** Reads a run's history as events, with the names their ids stand for. */
export class HistoryReader {
  readonly #db: Db;
  readonly #names: EventNameReader;

  constructor(db: Db) {
    this.#db = db;
    this.#names = new EventNameReader(db);
  }

  async list(p: { tenantId: number; runId: bigint; afterSequence: number; limit: number }): Promise<Event[]> {
    const rows = await listEvents(this.#db, p);
    const names = await this.#names.find(rows);
    return rows.map((row, i) => {
      const found = names[i];
      if (found === undefined) throw new Error(`the definition of run ${p.runId} is gone or unreadable`);
      const event = toEventMessage(row, found);
      event.principal = row.principal;
      event.comment = row.comment;
      return event;
    });
  }
}

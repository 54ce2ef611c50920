import type { Event } from "@runmesh/contracts/event/v1/event_pb";
import type { Command } from "commander";
import { readCount, readId, readSequence } from "../arguments.ts";
import { EVENT_COLUMNS, eventShape } from "../event-view.ts";
import type { Host } from "../host.ts";
import { MAX_PAGE } from "../read-pages.ts";
import { openSession } from "../session.ts";

interface EventsOptions {
  readonly after: bigint;
  readonly limit: number;
}

export function addRunEvents(group: Command, host: Host): void {
  group
    .command("events")
    .argument("<run>", "the run's id", readId)
    .description("list a run's history from its first event")
    .option("--after <sequence>", "only events after this one", readSequence, 0n)
    .option("--limit <count>", "at most so many", readCount(1, 1_000_000), 1_000_000)
    .action(async (runId: bigint, options: EventsOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { runs } = await mesh();

      const events: Event[] = [];
      let afterSequence = options.after;
      for (let hasMore = true; hasMore && events.length < options.limit; ) {
        const pageSize = Math.min(MAX_PAGE, options.limit - events.length);
        const page = await runs.listEvents({ runId, afterSequence, pageSize }, call);
        events.push(...page.events);
        hasMore = page.hasMore && page.events.length > 0;
        afterSequence = page.events.at(-1)?.sequence ?? afterSequence;
      }

      printer.list(events, eventShape, EVENT_COLUMNS);
    });
}

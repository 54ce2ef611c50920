import { type Worker, WorkerSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import type { Command } from "commander";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { openSession } from "../session.ts";
import type { Column } from "../table.ts";
import { formatTime } from "../times.ts";

const COLUMNS: readonly Column<Worker>[] = [
  { title: "SESSION", read: (worker) => String(worker.sessionId) },
  { title: "NAME", read: (worker) => worker.name },
  { title: "STREAM", read: (worker) => (worker.connected ? "open" : "closed") },
  { title: "LEASED", align: "right", read: (worker) => `${worker.leasedCount}/${worker.slots}` },
  { title: "QUEUES", read: (worker) => worker.queues.join(" ") },
  { title: "HANDLERS", read: (worker) => worker.handlers.join(" ") },
  { title: "SEEN (UTC)", read: (worker) => formatTime(worker.seenTime) },
];

export function addWorkerList(group: Command, host: Host): void {
  addPageOptions(group.command("list"))
    .description("list the workers that are there, or were within the last minute, newest first")
    .action(async (options: PageOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { workers } = await mesh();

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await workers.listWorkers({ pageSize, pageToken }, call);
        return { items: answer.workers, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, (worker) => toShape(WorkerSchema, worker), COLUMNS);
      printer.nextPage(page.nextPageToken);
    });
}

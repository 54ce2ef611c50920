import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type AuditEntry, AuditEntrySchema } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { type Command, InvalidArgumentError } from "commander";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { addPageOptions, type PageOptions } from "../page-options.ts";
import { readPages } from "../read-pages.ts";
import { openSession } from "../session.ts";
import type { Column } from "../table.ts";
import { formatTime } from "../times.ts";

const COLUMNS: readonly Column<AuditEntry>[] = [
  { title: "TIME (UTC)", read: (entry) => formatTime(entry.time) },
  { title: "WHO", read: (entry) => entry.principal },
  { title: "WHAT", read: (entry) => entry.action },
  { title: "ON", read: (entry) => entry.target },
  { title: "FROM", read: (entry) => entry.origin },
  { title: "RESULT", read: (entry) => entry.result },
  { title: "WHY", read: (entry) => entry.comment },
];

interface ListOptions extends PageOptions {
  readonly principal: string;
  readonly action: string;
  readonly target: string;
  readonly after?: number;
  readonly before?: number;
}

export function addAuditList(group: Command, host: Host): void {
  addPageOptions(group.command("list"), 20)
    .description("list what was done and refused in the tenant, newest first; starts are told by their runs")
    .option("--principal <name>", "only by this one, as in key:7f3a5c0e91b24d68", "")
    .option("--action <action>", "only this, as in run.cancel", "")
    .option("--target <target>", "only on this, as in run/65536", "")
    .option("--after <time>", "only after, as in 2027-01-31T00:00:00Z", readTime)
    .option("--before <time>", "only before", readTime)
    .action(async (options: ListOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tenants } = await mesh();
      const { principal, action, target, after, before } = options;
      const filter = {
        ...{ principal, action, target },
        ...(after !== undefined && { after: timestampFromMs(after) }),
        ...(before !== undefined && { before: timestampFromMs(before) }),
      };

      const page = await readPages(options.limit, options.pageToken, async (pageSize, pageToken) => {
        const answer = await tenants.listAudit({ filter, pageSize, pageToken }, call);
        return { items: answer.entries, nextPageToken: answer.nextPageToken };
      });

      printer.list(page.items, (entry) => toShape(AuditEntrySchema, entry), COLUMNS);
      printer.nextPage(page.nextPageToken);
    });
}

function readTime(text: string): number {
  const at = Date.parse(text);
  if (Number.isFinite(at)) return at;
  throw new InvalidArgumentError("A time is given as 2027-01-31T00:00:00Z.");
}

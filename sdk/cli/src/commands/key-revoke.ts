import type { Command } from "commander";
import type { Host } from "../host.ts";
import { keyShape } from "../key-view.ts";
import { openSession } from "../session.ts";

export function addKeyRevoke(group: Command, host: Host): void {
  group
    .command("revoke")
    .argument("<id>", "the key's id")
    .description("end a key for ever, its open streams and sessions within 5 s")
    .action(async (id: string, _options: unknown, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tenants } = await mesh();

      const { key } = await tenants.revokeApiKey({ id }, call);

      printer.one(keyShape(key!), () => [`Key ${id} (${key!.name}) is revoked`]);
    });
}

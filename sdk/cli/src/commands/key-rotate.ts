import type { Command } from "commander";
import type { Host } from "../host.ts";
import { printSecret } from "../key-view.ts";
import { openSession } from "../session.ts";

export function addKeyRotate(group: Command, host: Host): void {
  group
    .command("rotate")
    .argument("<id>", "the key's id")
    .description("make a new secret of a key; the one before works on for the overlap")
    .option("--overlap <duration>", "up to 7d; 0s ends the one before at once", "1h")
    .action(async (id: string, options: { overlap: string }, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const { tenants } = await mesh();

      const { key, secret } = await tenants.rotateApiKey({ id, overlap: options.overlap }, call);

      printSecret(printer, key!, secret);
    });
}

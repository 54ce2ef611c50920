import { randomUUID } from "node:crypto";
import type { Command } from "commander";
import { readId } from "../arguments.ts";
import type { Host } from "../host.ts";
import { readJsonArgument } from "../read-file.ts";
import { openSession } from "../session.ts";

export function addRunSignal(group: Command, host: Host): void {
  group
    .command("signal")
    .argument("<run>", "the run's id", readId)
    .argument("<name>", "the signal's name")
    .description("send a signal to a run; it is kept until a handler waits for it")
    .option("--value <json>", 'what it carries: JSON, @file, or "-" for standard input')
    .option("--request-id <id>", "a second signal with it is the first one again; for scripts that repeat")
    .action(async (runId: bigint, name: string, options: SignalOptions, command: Command) => {
      const { printer, call, mesh } = openSession(command, host);
      const value = options.value === undefined ? undefined : await readJsonArgument(options.value, host, "--value");
      const { runs } = await mesh();
      const requestId = options.requestId ?? randomUUID();
      const payload = value === undefined ? {} : { payload: { case: "valueJson" as const, value } };

      await runs.sendSignal({ runId, name, requestId, ...payload }, call);

      printer.one({ runId: String(runId), name }, () => [`Sent ${name} to run ${runId}`]);
    });
}

interface SignalOptions {
  readonly value?: string;
  readonly requestId?: string;
}

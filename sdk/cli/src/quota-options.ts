import type { Command } from "commander";
import { readCount } from "./arguments.ts";

export interface QuotaOptions {
  readonly requestsPerSecond: number;
  readonly startsPerSecond: number;
}

const MAX_RATE = 1_000_000;

export function addQuotaOptions(command: Command): Command {
  return command
    .option("--requests-per-second <count>", "of each key; 0 takes the default", readCount(0, MAX_RATE), 0)
    .option("--starts-per-second <count>", "runs of the whole tenant; 0 takes the default", readCount(0, MAX_RATE), 0);
}

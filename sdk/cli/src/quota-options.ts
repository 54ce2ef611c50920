import type { Command } from "commander";
import { readCount } from "./arguments.ts";

export interface QuotaOptions {
  readonly requestsPerSecond: number;
  readonly startsPerSecond: number;
  readonly keepDays: number;
}

const MAX_RATE = 1_000_000;
const MAX_KEEP_DAYS = 36_500;

export function addQuotaOptions(command: Command): Command {
  return command
    .option("--requests-per-second <count>", "of each key; 0 takes the default", readCount(0, MAX_RATE), 0)
    .option("--starts-per-second <count>", "runs of the whole tenant; 0 takes the default", readCount(0, MAX_RATE), 0)
    .option("--keep-days <count>", "of ended runs; 0 takes the default", readCount(0, MAX_KEEP_DAYS), 0);
}

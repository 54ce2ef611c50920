import type { Command } from "commander";
import { readCount } from "./arguments.ts";

export interface PageOptions {
  readonly limit: number;
  readonly pageToken: string;
}

/** Most that one command lists; what is beyond is behind the page token. */
const MAX_LIMIT = 100_000;

export function addPageOptions(command: Command, limit = 100): Command {
  return command
    .option("--limit <count>", "at most so many", readCount(1, MAX_LIMIT), limit)
    .option("--page-token <token>", "where the list before this one ended", "");
}

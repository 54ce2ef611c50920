import { PrismaPg } from "@prisma/adapter-pg";
import type pg from "pg";
import { PrismaClient } from "./generated/client.ts";

/**
 * The typed client for ordinary reads, as lists with filters, on a pool of ours (`createPool`), so that both count
 * against the same connections. Whoever made the pool ends it.
 */
export function openPrisma(pool: pg.Pool): PrismaClient {
  return new PrismaClient({ adapter: new PrismaPg(pool) });
}

export type { PrismaClient };

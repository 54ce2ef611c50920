import { defineWorkflow } from "@runmesh/client";
import { z } from "zod";
import { reserve } from "./packing.ts";

export const restock = defineWorkflow({
  name: "restock",
  input: z.object({ shop: z.string(), sku: z.string() }),
  maxParallel: 10,
  concurrency: { key: (input) => input.shop, onConflict: "queue" },
  build(w) {
    const reserved = w.task(
      "reserve",
      reserve,
      { sku: w.input.sku },
      { priority: 10, concurrency: { key: "warehouse", limit: 3 } },
    );
    return { shelf: reserved.output.shelf };
  },
});

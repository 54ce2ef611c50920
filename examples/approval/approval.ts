import { defineTask, defineWorkflow } from "@runmesh/client";
import { z } from "zod";

export const approve = defineTask({
  name: "approve",
  input: z.object({ order: z.string(), cents: z.number().int() }),
  output: z.object({ state: z.enum(["paid", "refused", "expired"]), tracking: z.string().optional() }),
});

export const ship = defineTask({
  name: "ship-approved",
  input: z.object({ order: z.string() }),
  output: z.object({ tracking: z.string() }),
});

export const approval = defineWorkflow({
  name: "approval",
  input: z.object({ order: z.string(), cents: z.number().int() }),
  build: (w) => w.task("approve", approve, { order: w.input.order, cents: w.input.cents }).output,
});

export const shipping = defineWorkflow({
  name: "shipping",
  input: z.object({ order: z.string() }),
  build: (w) => ({ tracking: w.task("ship", ship, { order: w.input.order }).output.tracking }),
});

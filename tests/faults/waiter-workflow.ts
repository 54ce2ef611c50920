import { defineTask, defineWorkflow } from "@runmesh/client";
import { z } from "zod";

/** Losses are the test's doing; an error of any other kind would end the run. */
const retry = { maxAttempts: 1, maxLost: 1_000, initialInterval: "50ms" };

export const partTask = defineTask({
  name: "part",
  input: z.object({ n: z.number() }),
  output: z.object({ n: z.number(), effect: z.number() }),
  retry,
});

export const waiterTask = defineTask({
  name: "waiter",
  input: z.object({ rounds: z.number() }),
  output: z.object({ effects: z.array(z.number()), signals: z.array(z.any()) }),
  retry,
});

const part = defineWorkflow({
  name: "part",
  input: z.object({ n: z.number() }),
  build: (w) => w.task("part", partTask, { n: w.input.n }).output,
});

const waiter = defineWorkflow({
  name: "waiter",
  input: z.object({ rounds: z.number() }),
  build: (w) => w.task("waiter", waiterTask, { rounds: w.input.rounds }).output,
});

export const waiterWorkflow = { ...waiter, child: part };

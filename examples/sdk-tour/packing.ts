import { defineTask, defineWorkflow, orElse } from "@runmesh/client";
import { z } from "zod";

export const reserve = defineTask({
  name: "reserve",
  input: z.object({ sku: z.string(), count: z.number().int().default(1) }),
  output: z.object({ shelf: z.string(), note: z.string().optional() }),
  retry: { maxAttempts: 5, initialInterval: "500ms", nonRetryable: ["SoldOut"] },
  timeout: "30s",
});

export const notify = defineTask({
  name: "notify",
  input: z.object({ text: z.string() }),
  output: z.object({ sent: z.boolean() }),
  retry: { maxAttempts: 2, initialInterval: "100ms" },
});

export const pack = defineTask({
  name: "pack",
  input: z.object({ shelf: z.string(), note: z.string(), wasTold: z.boolean() }),
  output: z.object({ parcel: z.string() }),
  heartbeatTimeout: "20s",
});

export const packing = defineWorkflow({
  name: "packing",
  input: z.object({ sku: z.string() }),
  deadline: "1h",
  build(w) {
    const reserved = w.task("reserve", reserve, { sku: w.input.sku });
    const told = w.task("notify", notify, { text: "It is reserved." }, { after: [reserved], allowFailure: true });
    const packed = w.task("pack", pack, {
      shelf: reserved.output.shelf,
      note: orElse(reserved.output.note, "none"),
      wasTold: orElse(told.output.sent, false),
    });
    return { parcel: packed.output.parcel };
  },
});

/** Wrong wiring does not compile: `tsc` fails on each expectation that stops being an error. Nothing here runs. */
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { connect, defineTask, defineWorkflow, orElse } from "./index.ts";

const charge = defineTask({
  name: "charge",
  input: z.object({ orderId: z.string(), cents: z.number().int(), tries: z.number().default(3) }),
  output: z.object({ chargeId: z.string(), note: z.string().optional() }),
});
const pack = defineTask({
  name: "pack",
  input: v.object({ sku: v.string() }),
  output: v.object({ grams: v.number(), lines: v.array(v.string()) }),
});
const label = defineTask({ name: "label", input: type({ grams: "number" }), output: type({ code: "string" }) });
const ship = defineTask({
  name: "ship",
  input: z.object({ chargeId: z.string(), parcels: z.array(z.object({ grams: z.number() })), note: z.string() }),
  output: z.object({ tracking: z.string() }),
});

const order = defineWorkflow({
  name: "order",
  input: z.object({ id: z.string(), cents: z.number(), sku: z.string().default("none") }),
  concurrency: { key: (input) => input.id },
  build(w) {
    const paid = w.task("charge", charge, { orderId: w.input.id, cents: w.input.cents });
    const packed = w.task("pack", pack, { sku: w.input.sku });
    const labelled = w.task("label", label, { grams: packed.output.grams }, { after: [paid] });
    const shipped = w.task(
      "ship",
      ship,
      { chargeId: paid.output.chargeId, parcels: [packed.output], note: orElse(paid.output.note, "none") },
      { after: [paid], retry: { maxAttempts: 1 }, when: "all_done" },
    );
    return { tracking: shipped.output.tracking, label: labelled.output, fixed: "x", first: packed.output.lines[0] };
  },
});

const mesh = connect({ url: "http://localhost:7400" });
const run = await mesh.start(order, { id: "7", cents: 1 });
const done = await run.result();
done.tracking satisfies string;
done.label satisfies { code: string };
done.fixed satisfies "x";
done.first satisfies string | undefined;
// @ts-expect-error an item of a list may be missing
done.first satisfies string;
const [one] = await mesh.startMany(order, [{ input: { id: "7", cents: 1 }, idempotencyKey: "k" }]);
if (one?.ok) (await one.run.result()).tracking satisfies string;

charge.handle(async (input, ctx) => ({ chargeId: input.orderId + ctx.fence + input.tries.toFixed(0) }));
label.handle(({ grams }) => ({ code: grams.toFixed(1) }));
// @ts-expect-error the output is wrong
charge.handle(async () => ({ chargeId: 1 }));
// @ts-expect-error the output is missing
label.handle(() => {});
// @ts-expect-error the handler's input has no such field
pack.handle(({ grams }) => ({ grams, lines: [] }));

pack.handle(async ({ sku }, ctx) => {
  const one = await ctx.step("one", (key) => ({ key, at: new Date(), tags: [1, 2] as const, f: undefined }));
  one satisfies { key: string; at: string; tags: readonly [1, 2]; f: undefined };
  // @ts-expect-error a date is stored as text
  one.at satisfies Date;
  const odd = await ctx.step("odd", () => ({ error: new TypeError("x"), map: new Map([["a", 1]]), big: 5n }));
  // @ts-expect-error the message of an error is not stored
  odd.error.message satisfies unknown;
  // @ts-expect-error nothing of a map is stored
  odd.map.size satisfies unknown;
  odd.big satisfies never;
  (await ctx.waitForSignal("any")) satisfies unknown;
  (await ctx.waitForSignal<{ yes: boolean }>("typed")).yes satisfies boolean;
  const schema = z.object({ yes: z.boolean().default(true) });
  (await ctx.waitForSignal("checked", { schema })).yes satisfies boolean;
  const late = await ctx.waitForSignal("checked", { schema, timeout: "1d" });
  // @ts-expect-error none may have come
  late.yes satisfies boolean;
  late?.yes satisfies boolean | undefined;
  const child = await ctx.startRun(order, { id: sku, cents: 1 }, { detached: true, labels: { a: "b" } });
  (await child.result()).tracking satisfies string;
  // @ts-expect-error the child's input is wrong
  await ctx.startRun(order, { id: 7 });
  // @ts-expect-error a child has no key of its own
  await ctx.startRun(order, { id: sku, cents: 1 }, { idempotencyKey: "k" });
  (await (await ctx.startRun("by-name", { any: 1 }, { version: 2 })).result()) satisfies unknown;
  // @ts-expect-error a duration is text
  await ctx.sleep(1_000);
  return { grams: 1, lines: [] };
});

defineWorkflow({
  name: "bad",
  input: z.object({ id: z.string(), n: z.number() }),
  build(w) {
    // @ts-expect-error a number is not a string
    const a = w.task("charge", charge, { orderId: w.input.n, cents: 1 });
    // @ts-expect-error cents is missing
    w.task("charge", charge, { orderId: w.input.id });
    // @ts-expect-error there is no such output
    w.task("ship", ship, { chargeId: a.output.nope, parcels: [], note: "" });
    // @ts-expect-error an optional output needs a fallback
    w.task("ship", ship, { chargeId: a.output.chargeId, parcels: [], note: a.output.note });
    // @ts-expect-error an excess key
    w.task("charge", charge, { orderId: "a", cents: 1, zzz: 1 });
    // @ts-expect-error the fallback has another type
    w.task("ship", ship, { chargeId: "a", parcels: [], note: orElse(a.output.note, 1) });
    // @ts-expect-error there is no such option
    w.task("charge", charge, { orderId: "a", cents: 1 }, { afer: [a] });
    // @ts-expect-error there is no such condition
    w.task("charge", charge, { orderId: "a", cents: 1 }, { when: "sometimes" });
    // @ts-expect-error valibot's number is not a string
    w.task("pack", pack, { sku: w.input.n });
    // @ts-expect-error arktype's number is not a string
    w.task("label", label, { grams: w.input.id });
    const soft = w.task("soft", charge, { orderId: "a", cents: 1 }, { allowFailure: true });
    // @ts-expect-error the output of a task that may fail needs a fallback
    w.task("ship", ship, { chargeId: soft.output.chargeId, parcels: [], note: "" });
    w.task("ship", ship, { chargeId: orElse(soft.output.chargeId, "free"), parcels: [], note: "" });
    const repair = w.task("repair", charge, { orderId: "a", cents: 1 }, { when: "any_failed", after: [soft] });
    // @ts-expect-error the output of a task that may be skipped needs a fallback
    w.task("ship", ship, { chargeId: repair.output.chargeId, parcels: [], note: "" });
    return {};
  },
});
// @ts-expect-error the input is wrong
await mesh.start(order, { id: 7 });
// @ts-expect-error the input is missing
await mesh.start(order);
// @ts-expect-error one item's input is wrong
await mesh.startMany(order, [{ input: { id: "7" } }]);

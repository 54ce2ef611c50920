import { z } from "zod";
import { approve, ship, shipping } from "./approval.ts";
import { pay, sendMail } from "./world.ts";

const decision = z.object({ by: z.string(), yes: z.boolean() });

export const approveHandler = approve.handle(async ({ order, cents }, ctx) => {
  await ctx.step("ask", (key) => sendMail(`May ${cents} cents be paid for ${order}?`, key));

  let decided = await ctx.waitForSignal("decision", { schema: decision, timeout: "1d" });
  for (let day = 1; decided === undefined && day <= 3; day++) {
    await ctx.step("remind", (key) => sendMail(`Day ${day}: ${order} waits for you`, key));
    decided = await ctx.waitForSignal("decision", { schema: decision, timeout: "1d" });
  }
  if (decided === undefined) return { state: "expired" };
  if (!decided.yes) return { state: "refused" };

  await ctx.sleep("1s");
  await ctx.step("pay", (key) => pay(order, cents, key));

  const parcel = await ctx.startRun(shipping, { order }, { labels: { order } });
  const { tracking } = await parcel.result();
  return { state: "paid", tracking };
});

export const shipHandler = ship.handle(({ order }) => ({ tracking: `T-${order}` }));

import { nonRetryable, retryAfter } from "@runmesh/worker";
import { notify, pack, reserve } from "./packing.ts";

class SoldOut extends Error {
  override readonly name = "SoldOut";
}

export const handlers = [
  reserve.handle(({ sku, count }, ctx) => {
    if (sku === "sold-out") throw new SoldOut(`no ${sku} is left`);
    ctx.log.info(`reserving ${count} of ${sku}`);
    return { shelf: `A-${sku}` };
  }),

  notify.handle((_, ctx) => {
    if (ctx.attempt === 1) throw retryAfter("200ms", new Error("the mail server is busy"));
    throw nonRetryable(new Error("the mail server knows no such address"));
  }),

  pack.handle(async ({ shelf, note }, ctx) => {
    const packed = (ctx.lastProgress as number | undefined) ?? 0;
    for (let box = packed; box < 3; box++) {
      ctx.signal.throwIfAborted();
      ctx.progress(box + 1);
    }
    return { parcel: `${shelf}, note: ${note}` };
  }),
];

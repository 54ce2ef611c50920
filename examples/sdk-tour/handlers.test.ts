import { runTask } from "@runmesh/worker";
import { expect, test } from "vitest";
import { handlers } from "./handlers.ts";
import { pack, reserve } from "./packing.ts";

test("reserving takes one where no count is given", async () => {
  const lines: string[] = [];

  const output = await runTask(reserve, handlers[0]!, { sku: "lamp" }, { onLog: (_, line) => lines.push(line) });

  expect(output).toEqual({ shelf: "A-lamp" });
  expect(lines).toEqual(["reserving 1 of lamp"]);
});

test("packing goes on where the attempt before left off", async () => {
  const told: unknown[] = [];
  const input = { shelf: "A-lamp", note: "none", wasTold: true };

  await runTask(pack, handlers[2]!, input, { lastProgress: 2, onProgress: (value) => told.push(value) });

  expect(told).toEqual([3]);
});

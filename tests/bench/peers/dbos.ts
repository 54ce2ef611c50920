/** DBOS Transact, in process. */
import { randomUUID } from "node:crypto";
import { DBOS } from "@dbos-inc/dbos-sdk";
import { serveCalls } from "../serve-calls.ts";

const step = (n: number) => DBOS.runStep(() => Promise.resolve(n), { name: "step" });

const single = DBOS.registerWorkflow((n: number) => step(n), { name: "single" });

const chain = DBOS.registerWorkflow(async (n: number) => step(await step(await step(n))), { name: "chain" });

const fanOut = DBOS.registerWorkflow(
  async (width: number) => {
    await step(0);
    await Promise.all(Array.from({ length: width }, (_, i) => step(i)));
    return step(0);
  },
  { name: "fan-out" },
);

async function time(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

serveCalls({
  async start(databaseUrl: string) {
    DBOS.setConfig({ name: "bench", systemDatabaseUrl: databaseUrl, logLevel: "error" });
    await DBOS.launch();
  },
  async chains({ runs, inFlight }: { runs: number; inFlight: number }) {
    let next = 0;
    const drive = async () => {
      while (next < runs) {
        const handle = await DBOS.startWorkflow(chain, { workflowID: randomUUID() })(next++);
        await handle.getResult();
      }
    };
    await Promise.all(Array.from({ length: inFlight }, drive));
  },
  fanOut: (width: number) =>
    time(async () => (await DBOS.startWorkflow(fanOut, { workflowID: randomUUID() })(width)).getResult()),
  async latency(count: number) {
    const times: number[] = [];
    for (let n = 0; n < count; n++) {
      times.push(
        await time(async () => (await DBOS.startWorkflow(single, { workflowID: randomUUID() })(n)).getResult()),
      );
    }
    return times;
  },
  stop: () => DBOS.shutdown(),
});

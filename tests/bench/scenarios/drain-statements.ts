import { readStatementCpu } from "../statement-cpu.ts";
import type { StatementTime } from "../statement-meter.ts";
import { rounded } from "../statistics.ts";
import type { MeshSubject } from "../subjects/mesh-subject.ts";
import type { DrainLoad } from "../subjects/subject.ts";

export interface StatementFigures {
  readonly name: string;
  readonly calls: number;
  readonly microsPerTask: number;
  readonly microsPerCall: number;
}

/** Less than this of a task's time is not worth a line. */
const LEAST_MICROS = 0.5;

/** Submits and drains once more, for what each statement costs PostgreSQL. */
export async function runDrainByStatement(mesh: MeshSubject, load: DrainLoad): Promise<StatementFigures[]> {
  await mesh.cluster.settle();
  await mesh.server.call("statements");
  const used = await readStatementCpu(mesh.cluster, async () => {
    await mesh.submit!(load);
    await mesh.beginDrain!(load);
    await mesh.drain!(load);
  });
  await mesh.check!(load);
  const sent = await mesh.server.call<StatementTime[]>("statements");
  const names = new Map(sent.map((statement) => [statement.text, statement.name]));
  return used
    .filter(({ text, calls, micros }) => calls > 0 && names.has(text) && micros / load.count >= LEAST_MICROS)
    .map(({ text, calls, micros }) => ({
      name: names.get(text)!,
      calls,
      microsPerTask: rounded(micros / load.count),
      microsPerCall: rounded(micros / calls),
    }));
}

import type { Run } from "@runmesh/contracts/run/v1/run_pb";
import { type WorkflowVersion, WorkflowVersionSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { Command } from "commander";
import { readCount, readScale } from "../arguments.ts";
import type { Host } from "../host.ts";
import { handlersOf, toDefinition } from "../import-definition.ts";
import { toShape } from "../json-shape.ts";
import { readFileOrStdin, readUtf8 } from "../read-file.ts";
import { exitCodeOf, formatRun, runShape } from "../run-view.ts";
import { openSession, type Session } from "../session.ts";
import { startSimulation } from "../simulation.ts";
import { untilAborted } from "../until-aborted.ts";
import { UsageError } from "../usage-error.ts";
import { waitForRun } from "../wait-for-run.ts";
import { readWfFormat } from "../wfformat.ts";
import { describeRegistered } from "./workflow-register.ts";

interface ImportOptions {
  readonly name?: string;
  readonly run?: boolean;
  readonly simulate?: number;
  readonly slots: number;
}

export function addImportWfFormat(group: Command, host: Host): void {
  group
    .command("wfformat")
    .argument("<file>", 'a WfFormat 1.5 instance (JSON); "-" reads standard input')
    .description("register a WfFormat instance as a workflow, one task for each of its tasks")
    .option("--name <name>", "the workflow's name; by default the one in the file")
    .option("--run", "start it and wait for the end")
    .option(
      "--simulate <scale>",
      "serve it with a worker that sleeps each measured runtime times this; without --run until Ctrl-C",
      readScale,
    )
    .option("--slots <count>", "how many tasks that worker does at a time", readCount(1, 10_000), 100)
    .action(async (file: string, options: ImportOptions, command: Command) => {
      const session = openSession(command, host);
      const imported = readWfFormat(parse(readUtf8(await readFileOrStdin(file, host), file), file), options.name);

      const mesh = await session.mesh();
      const answer = await mesh.workflows.registerWorkflow({ definition: toDefinition(imported) }, session.call);
      const { version, created } = answer;
      if (version === undefined) throw new Error("RegisterWorkflow answered no version");
      const { printer } = session;
      const runs = options.run === true;
      if (!runs) {
        const shape = { ...toShape(WorkflowVersionSchema, version), created };
        printer.one(shape, () => [describeRegistered(version, created)]);
      } else printer.note(describeRegistered(version, created));

      const { simulate: scale, slots } = options;
      const handlers = handlersOf(imported);
      const { url, apiKey } = session;
      await using _worker =
        scale === undefined ? undefined : await startSimulation({ url, apiKey, handlers, scale, slots });
      if (runs) {
        const run = await runOnce(session, version);
        printer.one(runShape(run), () => formatRun(run));
        host.end(exitCodeOf(run));
      } else if (scale !== undefined) {
        printer.note(
          `Serving ${handlers.length} handlers; Ctrl-C stops. Start it: ${session.next(`run start ${version.workflow}`)}`,
        );
        await untilAborted(host.signal);
      }
    });
}

async function runOnce(session: Session, { workflow, version }: WorkflowVersion): Promise<Run> {
  const mesh = await session.mesh();
  const { runId } = await mesh.runs.startRun({ workflow, version }, session.call);
  session.printer.note(`Started run ${runId}`);
  return waitForRun(mesh, runId, session.progress, session.signal);
}

function parse(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new UsageError(`${file} is not JSON: ${(cause as Error).message}`, { cause });
  }
}

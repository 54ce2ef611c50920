import type { WorkflowVersion } from "@runmesh/contracts/workflow/v1/workflow_pb";
import { WorkflowVersionSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { Command } from "commander";
import { readDefinition } from "../definition-file.ts";
import type { Host } from "../host.ts";
import { toShape } from "../json-shape.ts";
import { plural } from "../plural.ts";
import { readFileOrStdin, readUtf8 } from "../read-file.ts";
import { openSession } from "../session.ts";

export function addWorkflowRegister(group: Command, host: Host): void {
  group
    .command("register")
    .argument("<file>", 'a definition in JSON; "-" reads standard input')
    .description("register a workflow; the same content again answers the same version")
    .action(async (file: string, _options: unknown, command: Command) => {
      const session = openSession(command, host);
      const definition = readDefinition(readUtf8(await readFileOrStdin(file, host), file), file);

      const mesh = await session.mesh();
      const { version, created } = await mesh.workflows.registerWorkflow({ definition }, session.call);

      if (version === undefined) throw new Error("RegisterWorkflow answered no version");
      session.printer.one({ ...toShape(WorkflowVersionSchema, version), created }, () => [
        describeRegistered(version, created),
      ]);
    });
}

export function describeRegistered(version: WorkflowVersion, created: boolean): string {
  const { workflow, taskCount, edgeCount } = version;
  const what = `${workflow}@${version.version}: ${plural(taskCount, "task")}, ${plural(edgeCount, "edge")}`;
  return created ? `Registered ${what}` : `Registered before: ${what}`;
}

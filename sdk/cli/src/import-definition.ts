import { create } from "@bufbuild/protobuf";
import { type Definition, DefinitionSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { ImportedWorkflow } from "./wfformat.ts";

/** The definition that an imported workflow is registered by. */
export function toDefinition(workflow: ImportedWorkflow): Definition {
  const encoder = new TextEncoder();
  return create(DefinitionSchema, {
    name: workflow.name,
    tasks: workflow.tasks.map(({ key, handler, dependsOn, params }) => ({
      key,
      handler,
      dependsOn: [...dependsOn],
      paramsPayload: { case: "paramsJson" as const, value: encoder.encode(JSON.stringify(params)) },
    })),
  });
}

export function handlersOf(workflow: ImportedWorkflow): string[] {
  return [...new Set(workflow.tasks.map((task) => task.handler))];
}

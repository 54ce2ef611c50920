import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import type { RunService, StartRunRequestSchema } from "@runmesh/contracts/run/v1/run_service_pb";
import type { DefinitionSchema, TaskDefinitionSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";

type DefinitionInit = Omit<Exclude<MessageInitShape<typeof DefinitionSchema>, { $typeName: string }>, "tasks">;
type TaskInit = Omit<Exclude<MessageInitShape<typeof TaskDefinitionSchema>, { $typeName: string }>, "paramsPayload">;

export interface GivenTask extends TaskInit {
  /** JSON text. */
  readonly params?: string;
}

export interface GivenDefinition extends DefinitionInit {
  readonly tasks?: readonly GivenTask[];
  /** JSON text. */
  readonly output?: string;
}

export type GivenStart = Exclude<MessageInitShape<typeof StartRunRequestSchema>, { $typeName: string }> & {
  /** JSON text. */
  readonly input?: string;
};

export interface Given {
  /** Registers a workflow of a name of its own where none is given; one task `work` where no tasks are. */
  workflow(definition?: GivenDefinition): Promise<{ name: string; version: number; contentHash: string }>;
  /** Starts a run of a definition given inline. */
  run(definition?: GivenDefinition, start?: GivenStart): Promise<bigint>;
}

/** A definition as the contract has it: tasks have the handler `work` unless told otherwise. */
export function toDefinition({ tasks = [{}], output, ...definition }: GivenDefinition) {
  return {
    name: `test-${randomUUID()}`,
    ...definition,
    tasks: tasks.map(({ params, ...task }, i) => ({
      key: tasks.length === 1 ? "work" : `task-${i}`,
      handler: "work",
      ...task,
      ...(params !== undefined && { paramsPayload: { case: "paramsJson" as const, value: Buffer.from(params) } }),
    })),
    ...(output !== undefined && { outputPayload: { case: "outputJson" as const, value: Buffer.from(output) } }),
  };
}

/** A start as the contract has it. */
export function toStart({ input, ...start }: GivenStart) {
  return {
    ...start,
    ...(input !== undefined && { inputPayload: { case: "inputJson" as const, value: Buffer.from(input) } }),
  };
}

export function createGiven(clients: {
  readonly runs: Client<typeof RunService>;
  readonly workflows: Client<typeof WorkflowService>;
}): Given {
  const { runs, workflows } = clients;
  return {
    async workflow(definition = {}) {
      const { version } = await workflows.registerWorkflow({ definition: toDefinition(definition) });
      return { name: version!.workflow, version: version!.version, contentHash: version!.contentHash };
    },
    async run(definition = {}, start = {}) {
      return (await runs.startRun({ ...toStart(start), definition: toDefinition(definition) })).runId;
    },
  };
}

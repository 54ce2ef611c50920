import type { MessageInitShape } from "@bufbuild/protobuf";
import type { GetTaskRequestSchema } from "@runmesh/contracts/task/v1/task_service_pb";

/** A task is named by its id alone, or by its run and its key. */
export function taskTarget(id: bigint, key: string | undefined): MessageInitShape<typeof GetTaskRequestSchema> {
  return key === undefined ? { taskId: id } : { runId: id, key };
}

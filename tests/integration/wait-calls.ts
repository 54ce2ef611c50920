/** Calls that a handler's waits are made of, as a worker sends them. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { StepKind, type StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import type { WaitSchema } from "@runmesh/contracts/lease/v1/lease_service_pb";
import type { TestMesh } from "@runmesh/testing/mesh";
import type { LeaseKey, MeshWorker } from "@runmesh/testing/mesh-worker";

type StepInit = Exclude<MessageInitShape<typeof StepSchema>, { $typeName: string }>;
type WaitInit = Exclude<MessageInitShape<typeof WaitSchema>, { $typeName: string }>;

const json = (value: unknown) => Buffer.from(JSON.stringify(value));
export const text = (bytes: Uint8Array) => Buffer.from(bytes).toString("utf8");
const keyOf = ({ taskId, fence }: LeaseKey) => ({ taskId, fence });
export const step = (position: number, name: string, value: unknown): StepInit => ({
  position,
  kind: StepKind.STEP,
  name,
  valueJson: json(value),
});
export const signalWait = (position: number, name: string, ms?: number, occurrence = 0): WaitInit => ({
  position,
  kind: StepKind.SIGNAL,
  name,
  occurrence,
  ...(ms !== undefined && { duration: ofMs(ms) }),
});
export const sleepWait = (position: number, ms: number): WaitInit => ({
  position,
  kind: StepKind.SLEEP,
  name: "sleep",
  duration: ofMs(ms),
});
export const ofMs = (ms: number) => ({ seconds: BigInt(Math.floor(ms / 1_000)), nanos: (ms % 1_000) * 1e6 });

export const record = (mesh: TestMesh, worker: MeshWorker, lease: LeaseKey, ...steps: StepInit[]) =>
  mesh.leases.recordSteps({ ...worker.session, ...keyOf(lease), steps });
export const suspend = (mesh: TestMesh, worker: MeshWorker, lease: LeaseKey, ...waits: WaitInit[]) =>
  mesh.leases.suspendTask({ ...worker.session, ...keyOf(lease), waits });
export const list = (mesh: TestMesh, worker: MeshWorker, lease: LeaseKey, fromPosition = 0) =>
  mesh.leases.listSteps({ ...worker.session, ...keyOf(lease), fromPosition });
export const signal = (mesh: TestMesh, runId: bigint, name: string, value: unknown, requestId = "") =>
  mesh.runs.sendSignal({ runId, name, payload: { case: "valueJson", value: json(value) }, requestId });
export const startChild = (
  mesh: TestMesh,
  worker: MeshWorker,
  lease: LeaseKey,
  workflow: string,
  position = 0,
  rest = {},
) => mesh.runs.startChildRun({ ...worker.session, ...keyOf(lease), position, start: { workflow }, ...rest });
export const resultWait = (position: number, workflow: string, childPosition = 0): WaitInit => ({
  position,
  kind: StepKind.RESULT,
  name: workflow,
  childPosition,
});
export const stateOf = async (mesh: TestMesh, taskId: bigint) => (await mesh.tasks.getTask({ taskId })).task!.state;

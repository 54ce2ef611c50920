import type { Step, StepKind } from "@runmesh/contracts/lease/v1/lease_pb";
import type { Wait } from "@runmesh/contracts/lease/v1/lease_service_pb";

/** One call of the handler, by which it is known on each pass. */
export interface Call {
  readonly position: number;
  readonly kind: StepKind;
  readonly name: string;
  /** From 0: the calls of this kind and name in their order. */
  readonly occurrence: number;
}

/** A call that the task is to be suspended for. */
export type WaitCall = Call & Partial<Pick<Wait, "duration" | "childPosition">>;

/** What a call of this attempt is answered, and is recorded with. */
export type Answer = Partial<Pick<Step, "valueJson" | "error">>;

/** An answer of a step that failed. */
export const failedWith = (failure: { type: string; message: string; retryable: boolean }): Answer => ({
  error: { $typeName: "runmesh.lease.v1.StepError", ...failure, state: "", taskKey: "" },
});

export const isSame = (step: Step, call: Call): boolean =>
  step.kind === call.kind && step.name === call.name && step.occurrence === call.occurrence;

const KINDS = ["a call", "step", "sleep", "signal", "start of", "result of"];

export const describe = ({ kind, name, occurrence }: Omit<Call, "position">): string =>
  `${KINDS[kind] ?? "a call"} ${JSON.stringify(name)}${occurrence > 0 ? ` (call ${occurrence + 1} of it)` : ""}`;

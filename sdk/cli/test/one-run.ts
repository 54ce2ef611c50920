import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { ErrorDetailSchema, type Reason } from "@runmesh/contracts/error/v1/error_pb";
import { EventType } from "@runmesh/contracts/event/v1/event_pb";
import { Run_State, RunSchema } from "@runmesh/contracts/run/v1/run_pb";
import { RunService, type StartRunRequest } from "@runmesh/contracts/run/v1/run_service_pb";

/** An id that a JavaScript number cannot hold. */
export const BIG_RUN = 9007199254740993n;

export function refuse(reason: Reason, code: Code): ConnectError {
  const value = create(ErrorDetailSchema, {
    reason,
    requestId: "req-1",
    advice: "Do otherwise.",
    violations: [{ field: "definition.tasks[3].depends_on[0]", reason, description: "names no task" }],
  });
  return new ConnectError("no such task", code, undefined, [{ desc: ErrorDetailSchema, value }]);
}

export function ended(state: Run_State) {
  return create(RunSchema, {
    id: BIG_RUN,
    workflow: "order",
    workflowVersion: 2,
    state,
    sequence: 2n,
    tasks: { total: 1, succeeded: 1 },
    createTime: timestampFromMs(0),
    endTime: timestampFromMs(3_400),
    ...(state === Run_State.SUCCEEDED && { outputJson: new TextEncoder().encode('{"n": 9007199254740993}') }),
  });
}

/** A mesh whose one run ends in the given state. */
export function oneRun(state: Run_State, starts: StartRunRequest[] = []) {
  return (router: ConnectRouter) =>
    router.service(RunService, {
      startRun(request) {
        starts.push(request);
        return { runId: BIG_RUN, created: true, workflowVersion: 2 };
      },
      getRun: () => ({ run: ended(state) }),
      async *watchRun() {
        const snapshot = { id: BIG_RUN, state: Run_State.RUNNING, tasks: { total: 1, open: 1 }, sequence: 1n };
        yield { change: { kind: { case: "snapshot", value: snapshot }, sequence: 1n } };
        const event = { type: EventType.TASK_SUCCEEDED, runId: BIG_RUN, taskKey: "a", attempt: 1, sequence: 2n };
        yield { change: { kind: { case: "event", value: event }, sequence: 2n, run: ended(state) } };
      },
    });
}

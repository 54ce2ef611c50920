import { setTimeout as delay } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { MeshError } from "@runmesh/client";
import { type Step, StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import type { Call, WaitCall } from "../src/calls.ts";
import { createDurable, type Durable } from "../src/durable.ts";
import { CheckFailedError } from "../src/failure.ts";
import type { Forgotten } from "../src/given-failures.ts";

const LOOSE = 10_000;

/** A task's record, as the mesh keeps it over the passes of a handler. */
/** What the mesh would refuse of a record. */
const tooDeep = () =>
  CheckFailedError.from(
    new MeshError("INVALID_PAYLOAD", "too deep", {
      violations: [{ field: "steps[0].value_json", reason: "INVALID_PAYLOAD", description: "too deep" }],
    }),
  );

export function startTask({ inProcessMs = 10_000 } = {}) {
  const record: Step[] = [];
  let passes = 0;
  let childId = 100n;
  const task = {
    record,
    /** Answers of waits by name, as they come. */
    signals: new Map<string, string[]>(),
    refused: undefined as Error | undefined,
    /** Waits of each request to be suspended. */
    asked: [] as WaitCall[][],
    /** Steps that cannot be recorded: a call that has one is refused. */
    refuses: (_step: Step): boolean => false,
    /** So many starts of children find no room. */
    full: 0,
    /** How long each start of a child takes. */
    startMs: [] as number[],
    suspensions: [] as string[][],
    started: [] as bigint[],
    /** Runs the handler from its top. Answers what it does, or "suspended". */
    async pass<T>(handler: (ctx: Durable) => Promise<T>): Promise<T | "suspended"> {
      const suspended = Promise.withResolvers<"suspended">();
      const put = (step: Step) => {
        const at = record.findIndex((other) => other.position === step.position);
        if (at >= 0 && record[at]!.done > 0) return;
        if (at >= 0) record.splice(at, 1);
        record.push(create(StepSchema, { ...step, done: Math.max(0, ...record.map((other) => other.done)) + 1 }));
      };
      const durable = createDurable({
        isFirst: passes++ === 0,
        inProcessMs,
        scope: "7/k",
        onSuspended: () => suspended.resolve("suspended"),
        async startChild(call: Call) {
          if (task.full-- > 0) throw new MeshError("OVERLOADED", "no room", { retryAfterMs: 50 });
          const step = create(StepSchema, { ...call, done: 1, childRunId: ++childId });
          await delay(task.startMs.shift() ?? 0);
          task.started.push(childId);
          const loose = findLoose(record, call);
          if (loose !== undefined) {
            record.splice(record.indexOf(loose), 1);
            put(create(StepSchema, { ...call, childRunId: loose.childRunId }));
            return record.at(-1)!;
          }
          const before = record.find((other) => other.position === call.position);
          if (before !== undefined) Object.assign(before, { childRunId: childId, renew: false });
          else put(step);
          return step;
        },
        store: {
          load: async () => record.map((step) => create(StepSchema, { ...step })),
          async record(steps) {
            if (task.refused) throw task.refused;
            if (steps.some((step) => task.refuses(step))) throw tooDeep();
            for (const step of steps) put(step);
          },
          async suspend(waits, stay) {
            if (!stay) task.asked.push([...waits]);
            const answers: Step[] = [];
            for (const wait of waits) {
              const { position, kind, name, occurrence } = wait;
              const loose = findLoose(record, wait);
              if (loose !== undefined) record.splice(record.indexOf(loose), 1);
              const json = loose ? Buffer.from(loose.valueJson).toString() : task.signals.get(wait.name)?.shift();
              if (json === undefined) continue;
              put(create(StepSchema, { position, kind, name, occurrence, valueJson: Buffer.from(json) }));
              answers.push(record.at(-1)!);
            }
            if (answers.length > 0 || stay) return answers;
            task.suspensions.push(waits.map((wait) => wait.name));
            return "suspended";
          },
        },
      });
      const ended = handler(durable)
        .catch((error: unknown) => {
          const forget = durable.journal.failuresBehind(error);
          if (forget !== undefined) task.forget(forget);
          throw Object.assign(error as object, { forget, fault: durable.journal.fault });
        })
        .finally(() => durable.journal.close());
      return Promise.race([ended, suspended.promise]);
    },
    forget(forgotten: Forgotten): void {
      record.splice(0, record.length, ...forget(record, forgotten));
    },
  };
  return task;
}

/** As the mesh does with what a failed attempt names. */
export function forget(record: readonly Step[], { steps, from }: Forgotten): Step[] {
  const isPlaced = (step: Step) => step.position < LOOSE;
  const left = record.filter((step) => !steps.includes(step.position));
  const following = left.filter((step) => from > 0 && step.position >= from && isPlaced(step));
  const kept = following.filter((step) => step.done > 0 && step.error === undefined);
  const others = left.filter((step) => !following.includes(step) && !kept.some((other) => findLoose([step], other)));
  const last = Math.max(LOOSE - 1, ...others.map((step) => step.position));
  return [...others, ...kept.map((step, i) => create(StepSchema, { ...step, position: last + 1 + i }))];
}

/** What a call finds of its own that has no place any more. */
export const findLoose = (
  record: readonly Step[],
  { kind, name, occurrence }: Omit<Call, "position">,
): Step | undefined =>
  record.find(
    (step) => step.position >= LOOSE && step.kind === kind && step.name === name && step.occurrence === occurrence,
  );

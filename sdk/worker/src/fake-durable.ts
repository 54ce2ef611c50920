import { create } from "@bufbuild/protobuf";
import { type Step, StepKind, StepSchema } from "@runmesh/contracts/lease/v1/lease_pb";
import type { Call } from "./calls.ts";
import { createDurable, type Durable } from "./durable.ts";

/** What stands in for the mesh behind a handler's durable calls. */
export interface FakeMesh {
  /** Signals by name, in the order in which they are taken. A wait with a time-out that finds none times out. */
  readonly signals?: Readonly<Record<string, readonly unknown[]>>;
  /** What steps answered in an earlier pass, by name: such a step is not run. The second of a name is `name/1`. */
  readonly recorded?: Readonly<Record<string, unknown>>;
  /** Answers what a child run does; what it throws is what the child fails with. */
  readonly onStartRun?: (workflow: string, input: unknown) => unknown;
  /** Workflows whose runs do not end: a `result()` with a time-out times out. */
  readonly unending?: readonly string[];
  /** Told of each sleep, in milliseconds: it is over at once. */
  readonly onSleep?: (ms: number) => void;
}

const encoder = new TextEncoder();
const writeJson = (value: unknown) => encoder.encode(JSON.stringify(value) ?? "");

/** Durable calls that need no mesh: steps run once, waits are answered at once. */
export function createFakeDurable(scope: string, fake: FakeMesh): Durable {
  const signals = new Map(Object.entries(fake.signals ?? {}).map(([name, payloads]) => [name, [...payloads]]));
  const children = new Map<number, Promise<Step["error"] | Uint8Array<ArrayBuffer>>>();

  async function answer(wait: Call & { duration?: unknown; childPosition?: number | undefined }): Promise<Step> {
    const step = create(StepSchema, { ...wait, done: 1 });
    if (wait.kind === StepKind.SLEEP) {
      const { seconds, nanos } = wait.duration as { seconds: bigint; nanos: number };
      fake.onSleep?.(Number(seconds) * 1_000 + nanos / 1e6);
      return step;
    }
    if (wait.kind === StepKind.RESULT) {
      if (fake.unending?.includes(wait.name)) return timeOut(step, wait, `run of ${wait.name} ends`);
      const end = await children.get(wait.childPosition!)!;
      return Object.assign(step, end instanceof Uint8Array ? { valueJson: end } : { error: end });
    }
    const waiting = signals.get(wait.name) ?? [];
    if (waiting.length > 0) return Object.assign(step, { valueJson: writeJson(waiting.shift()) });
    return timeOut(step, wait, `signal ${wait.name} is left`);
  }

  function timeOut(step: Step, { duration }: { readonly duration?: unknown }, what: string): Step {
    if (duration === undefined) throw new Error(`no ${what}, and the wait has no time-out`);
    return Object.assign(step, { timedOut: true });
  }

  const durable = createDurable({
    scope,
    isFirst: true,
    inProcessMs: -1,
    onSuspended: () => undefined,
    async startChild(call, workflow, input) {
      const name = typeof workflow === "string" ? workflow : workflow.name;
      children.set(call.position, runChild(name, input));
      return create(StepSchema, { ...call, done: 1, childRunId: BigInt(call.position + 2) });
    },
    store: {
      load: async () => [],
      record: async () => undefined,
      suspend: (waits) => Promise.all(waits.map(answer)),
    },
  });

  async function runChild(name: string, input: unknown) {
    try {
      return writeJson(await fake.onStartRun?.(name, input));
    } catch (thrown) {
      const { name: type, message } = thrown as Error;
      return create(StepSchema, { error: { type, message, state: "FAILED", taskKey: "fake" } }).error;
    }
  }

  const occurrences = new Map<string, number>();
  const step: Durable["step"] = (name, fn) => {
    const occurrence = occurrences.get(name) ?? 0;
    occurrences.set(name, occurrence + 1);
    const key = occurrence === 0 ? name : `${name}/${occurrence}`;
    const isRecorded = fake.recorded !== undefined && Object.hasOwn(fake.recorded, key);
    return durable.step(name, isRecorded ? () => fake.recorded![key] as never : fn);
  };
  return { ...durable, step };
}

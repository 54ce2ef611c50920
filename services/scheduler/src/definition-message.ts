import { create } from "@bufbuild/protobuf";
import {
  type Concurrency as ConcurrencyMessage,
  type Definition as DefinitionMessage,
  DefinitionSchema,
  OnConflict,
  OnFailure,
  type TaskDefinition as TaskMessage,
  When,
} from "@runmesh/contracts/workflow/v1/workflow_pb";
import type * as domain from "@runmesh/domain/definition";
import { formatDuration } from "@runmesh/domain/duration";
import { invalidField } from "@runmesh/domain/errors";
import { readPayload } from "@runmesh/platform/payload";

const WHEN: Record<When, domain.When | undefined> = {
  [When.UNSPECIFIED]: undefined,
  [When.ALL_SUCCEEDED]: "all_succeeded",
  [When.ALL_DONE]: "all_done",
  [When.ANY_FAILED]: "any_failed",
};
const ON_FAILURE: Record<OnFailure, domain.OnFailure | undefined> = {
  [OnFailure.UNSPECIFIED]: undefined,
  [OnFailure.STOP]: "stop",
  [OnFailure.FINISH]: "finish",
};
const ON_CONFLICT: Record<OnConflict, domain.OnConflict | undefined> = {
  [OnConflict.UNSPECIFIED]: undefined,
  [OnConflict.QUEUE]: "queue",
  [OnConflict.CANCEL_OLDEST]: "cancel_oldest",
  [OnConflict.REFUSE]: "refuse",
};

/** Reads a definition as it came; the domain then checks it. Throws where a payload in it is none. */
export function readDefinition(message: DefinitionMessage, field: string): domain.DefinitionInput {
  return {
    name: message.name,
    tasks: message.tasks.map((task, i) => readTask(task, `${field}.tasks[${i}]`)),
    output: readPayload(message.outputPayload, `${field}.output`),
    deadline: message.deadline,
    onFailure: choose(ON_FAILURE, message.onFailure, `${field}.on_failure`),
    maxParallel: message.maxParallel,
    concurrency: readConcurrency(message.concurrency, `${field}.concurrency`),
  };
}

function readTask(task: TaskMessage, field: string): domain.TaskDefinitionInput {
  return {
    key: task.key,
    handler: task.handler,
    dependsOn: task.dependsOn,
    params: readPayload(task.paramsPayload, `${field}.params`),
    retry: task.retry && {
      maxAttempts: task.retry.maxAttempts,
      maxLost: task.retry.maxLost,
      initialInterval: task.retry.initialInterval || undefined,
      multiplier: task.retry.multiplier,
      maxInterval: task.retry.maxInterval || undefined,
      jitter: task.retry.jitter,
      nonRetryable: task.retry.nonRetryable,
    },
    timeouts: task.timeouts,
    priority: task.priority,
    queue: task.queue || undefined,
    requires: task.requires,
    concurrency: readConcurrency(task.concurrency, `${field}.concurrency`),
    exclusive: task.exclusive,
    when: choose(WHEN, task.when, `${field}.when`),
    allowFailure: task.allowFailure,
  };
}

const readConcurrency = (message: ConcurrencyMessage | undefined, field: string) =>
  message && { ...message, onConflict: choose(ON_CONFLICT, message.onConflict, `${field}.on_conflict`) };

/** The wire carries any number for an enum; one that means nothing here is refused, not taken for the default. */
function choose<K extends number, V>(table: Record<K, V | undefined>, value: K, field: string): V | undefined {
  if (Object.hasOwn(table, value)) return table[value];
  throw invalidField(field, `${value} is no value of this version`);
}

const findKey = <K extends number, V>(table: Record<K, V | undefined>, wanted: V): K =>
  Number(Object.keys(table).find((key) => table[Number(key) as K] === wanted)) as K;

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const duration = (ms: number): string => (ms === 0 ? "" : formatDuration(ms));

/** Writes a checked definition, every default filled in. */
export function writeDefinition(definition: domain.Definition): DefinitionMessage {
  return create(DefinitionSchema, {
    name: definition.name,
    tasks: definition.tasks.map(writeTask),
    ...(definition.output !== undefined && {
      outputPayload: { case: "outputJson" as const, value: bytes(definition.output) },
    }),
    deadline: duration(definition.deadlineMs),
    onFailure: findKey(ON_FAILURE, definition.onFailure),
    maxParallel: definition.maxParallel,
    ...(definition.concurrency && { concurrency: writeConcurrency(definition.concurrency) }),
  });
}

const writeConcurrency = (concurrency: domain.Concurrency) => ({
  key: concurrency.key,
  limit: concurrency.limit,
  onConflict: findKey(ON_CONFLICT, concurrency.onConflict),
});

const writeTask = (task: domain.TaskDefinition) => ({
  key: task.key,
  handler: task.handler,
  dependsOn: [...task.dependsOn],
  ...(task.params !== undefined && { paramsPayload: { case: "paramsJson" as const, value: bytes(task.params) } }),
  retry: {
    maxAttempts: task.retry.maxAttempts,
    maxLost: task.retry.maxLost,
    initialInterval: duration(task.retry.initialMs),
    multiplier: task.retry.multiplier,
    maxInterval: duration(task.retry.maxMs),
    jitter: task.retry.jitter,
    nonRetryable: [...task.retry.nonRetryable],
  },
  timeouts: {
    scheduleToStart: duration(task.timeouts.scheduleToStartMs),
    startToClose: duration(task.timeouts.startToCloseMs),
    heartbeat: duration(task.timeouts.heartbeatMs),
  },
  priority: task.priority,
  queue: task.queue,
  requires: [...task.requires],
  ...(task.concurrency && { concurrency: writeConcurrency(task.concurrency) }),
  exclusive: task.exclusive,
  when: findKey(WHEN, task.when),
  allowFailure: task.allowFailure,
});

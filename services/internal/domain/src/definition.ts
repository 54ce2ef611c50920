/** A definition as the mesh works with it: checked, every default filled in, durations in milliseconds. */
export interface Definition {
  readonly name: string;
  readonly tasks: readonly TaskDefinition[];
  /** JSON text of the output with references as written; `undefined` where the run answers null. */
  readonly output: string | undefined;
  /** 0 means none, for every duration here. */
  readonly deadlineMs: number;
  readonly onFailure: OnFailure;
  /** 0 means no limit. */
  readonly maxParallel: number;
  readonly concurrency: Concurrency | undefined;
}

export type OnFailure = "stop" | "finish";
export type When = "all_succeeded" | "all_done" | "any_failed";
export type OnConflict = "queue" | "cancel_oldest" | "refuse";

export interface TaskDefinition {
  readonly key: string;
  readonly handler: string;
  /** Keys as given; the plan adds those that references imply. */
  readonly dependsOn: readonly string[];
  /** JSON text with references as written; `undefined` stands for null. */
  readonly params: string | undefined;
  readonly retry: RetryPolicy;
  readonly timeouts: Timeouts;
  readonly priority: number;
  readonly queue: string;
  /** Sorted, without repeats. */
  readonly requires: readonly string[];
  readonly concurrency: Concurrency | undefined;
  readonly exclusive: boolean;
  readonly when: When;
  readonly allowFailure: boolean;
}

export interface RetryPolicy {
  /** Failures and time-outs before the task is DEAD; 0 means no limit. */
  readonly maxAttempts: number;
  /** Leases lost after the start before the task is DEAD; 0 where the first loss is the last. */
  readonly maxLost: number;
  readonly initialMs: number;
  readonly multiplier: number;
  readonly maxMs: number;
  readonly jitter: number;
  readonly nonRetryable: readonly string[];
}

export interface Timeouts {
  readonly scheduleToStartMs: number;
  readonly startToCloseMs: number;
  readonly heartbeatMs: number;
}

export interface Concurrency {
  readonly key: string;
  readonly limit: number;
  readonly onConflict: OnConflict;
}

/** What a caller sends: everything optional that has a default, durations as text. */
export interface DefinitionInput {
  readonly name?: string | undefined;
  readonly tasks?: readonly TaskDefinitionInput[] | undefined;
  readonly output?: string | undefined;
  readonly deadline?: string | undefined;
  readonly onFailure?: OnFailure | undefined;
  readonly maxParallel?: number | undefined;
  readonly concurrency?: ConcurrencyInput | undefined;
}

export interface TaskDefinitionInput {
  readonly key?: string | undefined;
  readonly handler?: string | undefined;
  readonly dependsOn?: readonly string[] | undefined;
  readonly params?: string | undefined;
  readonly retry?: RetryPolicyInput | undefined;
  readonly timeouts?: TimeoutsInput | undefined;
  readonly priority?: number | undefined;
  readonly queue?: string | undefined;
  readonly requires?: readonly string[] | undefined;
  readonly concurrency?: ConcurrencyInput | undefined;
  readonly exclusive?: boolean | undefined;
  readonly when?: When | undefined;
  readonly allowFailure?: boolean | undefined;
}

export interface RetryPolicyInput {
  readonly maxAttempts?: number | undefined;
  readonly maxLost?: number | undefined;
  readonly initialInterval?: string | undefined;
  readonly multiplier?: number | undefined;
  readonly maxInterval?: string | undefined;
  readonly jitter?: number | undefined;
  readonly nonRetryable?: readonly string[] | undefined;
}

export interface TimeoutsInput {
  readonly scheduleToStart?: string | undefined;
  readonly startToClose?: string | undefined;
  readonly heartbeat?: string | undefined;
}

export interface ConcurrencyInput {
  readonly key?: string | undefined;
  readonly limit?: number | undefined;
  readonly onConflict?: OnConflict | undefined;
}

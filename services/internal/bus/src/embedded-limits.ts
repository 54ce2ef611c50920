export interface EmbeddedLimits {
  /** Messages a subscription keeps, give or take a batch; beyond, publish answers `overloaded`. */
  readonly maxMessages: number;
  /** Failed deliveries after which a message is parked, with the later ones of its run. */
  readonly maxDeliveries: number;
  /** Rest after the first failed delivery; it doubles up to `lastRetryMs`. */
  readonly firstRetryMs: number;
  readonly lastRetryMs: number;
  /** A handler that takes longer has failed. */
  readonly deliveryTimeoutMs: number;
  /** How long a process that died keeps others from delivering. */
  readonly leaseMs: number;
  /** Runs whose events are delivered at the same time. */
  readonly concurrency: number;
}

export const EMBEDDED_LIMITS: EmbeddedLimits = {
  maxMessages: 100_000,
  maxDeliveries: 10,
  firstRetryMs: 100,
  lastRetryMs: 30_000,
  deliveryTimeoutMs: 30_000,
  leaseMs: 10_000,
  concurrency: 8,
};

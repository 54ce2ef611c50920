import { performance } from "node:perf_hooks";

export interface Take {
  /** What is limited, as in `requests:1:key:7f3a`. */
  readonly bucket: string;
  readonly count: number;
  /** Tokens that come back each second. */
  readonly perSecond: number;
  /** Tokens of a bucket that rested. */
  readonly burst: number;
}

/** Where rates are counted. In memory for one process; replicas share them elsewhere. */
export interface TokenBuckets {
  /**
   * Takes tokens while there is any and answers 0, else how many ms to wait. A take of more than there are leaves a
   * debt, so that a batch larger than the burst passes, and those after it wait.
   */
  take(take: Take): number | Promise<number>;
}

const MAX_BUCKETS = 100_000;

interface Bucket {
  tokens: number;
  at: number;
}

export class MemoryTokenBuckets implements TokenBuckets {
  readonly #buckets = new Map<string, Bucket>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  take({ bucket: name, count, perSecond, burst }: Take): number {
    const now = this.#now();
    let bucket = this.#buckets.get(name);
    if (bucket === undefined) {
      if (this.#buckets.size >= MAX_BUCKETS) this.#forgetOldest();
      bucket = { tokens: burst, at: now };
      this.#buckets.set(name, bucket);
    }
    bucket.tokens = Math.min(burst, bucket.tokens + ((now - bucket.at) / 1_000) * perSecond);
    bucket.at = now;
    // A batch may go into debt, a single one not: so a bucket without debt has at least one token to give.
    if (bucket.tokens < Math.min(1, count))
      return Math.max(1, Math.ceil(((1 - bucket.tokens) / perSecond) * 1_000 - 1e-6));
    bucket.tokens -= count;
    return 0;
  }

  /** The oldest entry makes room: it begins anew, full. */
  #forgetOldest(): void {
    const oldest = this.#buckets.keys().next();
    if (!oldest.done) this.#buckets.delete(oldest.value);
  }
}

import type { Wakeups } from "@runmesh/platform/wakeup";

interface Waiter {
  readonly routeIds: readonly number[];
  wake: () => void;
  isWoken: boolean;
}

interface RouteWaiters {
  readonly waiting: Set<Waiter>;
  readonly unsubscribe: () => void;
  /** Since when nobody waits. */
  leftAt: number;
  /** Counts the hints, so that a claim that began before one does not call the route dry after it. */
  hintCount: number;
  /** When a claim found nothing more, and no hint came since. */
  dryAt: number;
}

/** A route that nobody waits for is remembered so long: the next acquire of a worker comes right after its last. */
const MEMORY_MS = 1_000;

/** An acquire that is about to claim, and to wait where it finds nothing. */
export interface ArmedWaiter {
  /** Each route was found dry no longer ago than that, and no hint came since: a claim would find nothing. */
  isDry(withinMs: number): boolean;
  /** A claim that began after the arming has left nothing in these routes. */
  foundDry(): void;
  /** Resolves at the hint, the time-out or the abort, at once where the hint came already. */
  wait(timeoutMs: number, signal: AbortSignal): Promise<void>;
  /** For one that goes away: wakes others in its place, for the routes that had a hint since the arming. */
  passOn(): void;
  disarm(): void;
}

/**
 * Acquires that wait for work. A hint that a route has ready tasks wakes one of them, first come first served; one that
 * found work wakes the next, so that a burst of tasks wakes as many as it feeds and a single task wakes one.
 */
export class Waiters {
  readonly #wakeups: Wakeups;
  readonly #routes = new Map<number, RouteWaiters>();
  readonly #all = new Set<Waiter>();
  #sweep: NodeJS.Timeout | undefined;

  constructor(wakeups: Wakeups) {
    this.#wakeups = wakeups;
    // A new route may be one that they can serve, and they wait for those they knew.
    wakeups.subscribe("routes", () => {
      for (const waiter of this.#all) wake(waiter);
    });
  }

  /** Begins to wait before the claim is tried, so that a task that becomes ready meanwhile is not missed. */
  arm(routeIds: readonly number[]): ArmedWaiter {
    const waiter: Waiter = { routeIds, wake: () => {}, isWoken: false };
    this.#all.add(waiter);
    const armed = routeIds.map((routeId) => {
      const route = this.#add(routeId, waiter);
      return { route, hintCount: route.hintCount };
    });
    return {
      isDry: (withinMs) => {
        const since = performance.now() - withinMs;
        return armed.every(({ route }) => route.dryAt > since);
      },
      foundDry: () => {
        const now = performance.now();
        for (const { route, hintCount } of armed) if (route.hintCount === hintCount) route.dryAt = now;
      },
      wait: (timeoutMs, signal) => {
        if (waiter.isWoken || signal.aborted) return Promise.resolve();
        return new Promise((resolve) => {
          const finish = () => {
            clearTimeout(timer);
            signal.removeEventListener("abort", finish);
            resolve();
          };
          const timer = setTimeout(finish, timeoutMs);
          signal.addEventListener("abort", finish, { once: true });
          waiter.wake = finish;
        });
      },
      passOn: () => {
        if (!waiter.isWoken) return;
        for (const [i, { route, hintCount }] of armed.entries()) {
          if (route.hintCount !== hintCount) this.#wakeOne(routeIds[i]!);
        }
      },
      disarm: () => {
        this.#all.delete(waiter);
        for (const routeId of routeIds) this.#remove(routeId, waiter);
      },
    };
  }

  /** Wakes the next that waits for any of these routes. */
  wakeNext(routeIds: readonly number[]): void {
    for (const routeId of routeIds) if (this.#wakeOne(routeId)) return;
  }

  /** Wakes one for each of these routes. */
  wakeEach(routeIds: readonly number[]): void {
    for (const routeId of routeIds) this.#wakeOne(routeId);
  }

  #wakeOne(routeId: number): boolean {
    const route = this.#routes.get(routeId);
    if (route === undefined) return false;
    route.hintCount++;
    route.dryAt = Number.NEGATIVE_INFINITY;
    for (const waiter of route.waiting) {
      if (waiter.isWoken) continue;
      wake(waiter);
      return true;
    }
    return false;
  }

  #add(routeId: number, waiter: Waiter): RouteWaiters {
    let route = this.#routes.get(routeId);
    if (route === undefined) {
      const unsubscribe = this.#wakeups.subscribe(`ready:${routeId}`, () => this.#wakeOne(routeId));
      route = { waiting: new Set(), unsubscribe, leftAt: 0, hintCount: 0, dryAt: Number.NEGATIVE_INFINITY };
      this.#routes.set(routeId, route);
    }
    route.waiting.add(waiter);
    return route;
  }

  #remove(routeId: number, waiter: Waiter): void {
    const route = this.#routes.get(routeId);
    if (route === undefined) return;
    route.waiting.delete(waiter);
    if (route.waiting.size > 0) return;
    route.leftAt = performance.now();
    this.#sweep ??= setTimeout(() => this.#forget(), MEMORY_MS).unref();
  }

  /** Forgets routes that nobody has waited for in a while. */
  #forget(): void {
    this.#sweep = undefined;
    const before = performance.now() - MEMORY_MS;
    let isLeft = false;
    for (const [routeId, route] of this.#routes) {
      if (route.waiting.size > 0) continue;
      if (route.leftAt > before) isLeft = true;
      else {
        route.unsubscribe();
        this.#routes.delete(routeId);
      }
    }
    if (isLeft) this.#sweep = setTimeout(() => this.#forget(), MEMORY_MS).unref();
  }
}

function wake(waiter: Waiter): void {
  waiter.isWoken = true;
  waiter.wake();
}

import type { ConnectRouter } from "@connectrpc/connect";
import {
  Health,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "@runmesh/contracts/grpc/health/v1/health_pb";
import { invalidField } from "@runmesh/domain/errors";

export type HealthStatus = "SERVING" | "NOT_SERVING";

/** What the process says of itself and its services; the empty name is the process as a whole. */
export interface HealthState {
  set(service: string, status: HealthStatus): void;
  find(service: string): HealthStatus | undefined;
  /** Told after every change of the service; returns what ends the subscription. */
  subscribe(service: string, listener: () => void): () => void;
}

/** Begins as NOT_SERVING: a process is ready when it says so. */
export function createHealthState(): HealthState {
  const statuses = new Map<string, HealthStatus>([["", "NOT_SERVING"]]);
  const listeners = new Map<string, Set<() => void>>();

  return {
    set(service, status) {
      if (statuses.get(service) === status) return;
      statuses.set(service, status);
      for (const listener of [...(listeners.get(service) ?? [])]) listener();
    },
    find: (service) => statuses.get(service),
    subscribe(service, listener) {
      const own = () => listener();
      const all = listeners.get(service) ?? new Set();
      listeners.set(service, all.add(own));
      return () => {
        all.delete(own);
        if (all.size === 0 && listeners.get(service) === all) listeners.delete(service);
      };
    },
  };
}

/** Serves grpc.health.v1: Check answers NOT_FOUND for a service it does not know, Watch SERVICE_UNKNOWN, and waits. */
export function healthRoutes(state: HealthState): (router: ConnectRouter) => void {
  return (router) =>
    router.service(Health, {
      check(request) {
        const status = state.find(request.service);
        if (status === undefined) throw invalidField("service", "there is no such service here", "NOT_FOUND");
        return { status: ServingStatus[status] };
      },

      async *watch(request, context) {
        let told: HealthStatus | "SERVICE_UNKNOWN" | undefined;
        let wake = () => {};
        const unsubscribe = state.subscribe(request.service, () => wake());
        const onAbort = () => wake();
        context.signal.addEventListener("abort", onAbort, { once: true });
        try {
          // A watcher that reads slowly misses what was in between, never the last.
          while (!context.signal.aborted) {
            const status = state.find(request.service) ?? "SERVICE_UNKNOWN";
            if (status !== told) {
              told = status;
              yield { status: ServingStatus[status] };
              continue;
            }
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
          }
        } finally {
          unsubscribe();
          context.signal.removeEventListener("abort", onAbort);
        }
      },
    });
}

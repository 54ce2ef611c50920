import type { DescMethod } from "@bufbuild/protobuf";
import {
  type ConnectRouter,
  createMethodImplSpec,
  createServiceImplSpec,
  type MethodImplSpec,
} from "@connectrpc/connect";

/** What serves each method, bound to its service and without a protocol around it. */
export type MethodSpecs = ReadonlyMap<DescMethod, MethodImplSpec>;

/**
 * What serves each method of the routes, which are registered at `router` as well where one is given. Left out then is
 * what has options of its own: they tell that router how it is to be served.
 */
export function collectSpecs(routes: (router: ConnectRouter) => void, router?: ConnectRouter): MethodSpecs {
  const specs = new Map<DescMethod, MethodImplSpec>();
  const collecting: ConnectRouter = {
    handlers: router?.handlers ?? [],
    service(service, implementation, options) {
      router?.service(service, implementation, options);
      if (router !== undefined && options !== undefined) return collecting;
      const { methods } = createServiceImplSpec(service, implementation);
      for (const spec of Object.values(methods)) specs.set(spec.method, spec);
      return collecting;
    },
    rpc(method, implementation, options) {
      router?.rpc(method, implementation, options);
      if (router === undefined || options === undefined)
        specs.set(method, createMethodImplSpec(method, implementation));
      return collecting;
    },
  };
  routes(collecting);
  return specs;
}

import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { DescService } from "@bufbuild/protobuf";
import { ConnectError, createClient, createContextValues } from "@connectrpc/connect";
import { Reason } from "@runmesh/contracts/error/v1/error_pb";
import { Health } from "@runmesh/contracts/grpc/health/v1/health_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { TenantService } from "@runmesh/contracts/tenant/v1/tenant_service_pb";
import { expect, test } from "vitest";
import { authorize, ROLE_TABLE } from "./authorization.ts";
import { createHealthState, healthRoutes } from "./health.ts";
import { createInProcessTransport } from "./in-process.ts";
import { silentLog } from "./log.ts";
import { principalKey, type Role } from "./principal.ts";
import { errorInterceptor, findErrorDetail } from "./rpc-errors.ts";

/** Every service of the generated contracts, found on disk so that a new one cannot be forgotten. */
async function readServices(): Promise<DescService[]> {
  const root = fileURLToPath(new URL("../../../../gen/src/runmesh/", import.meta.url));
  const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith("_pb.js"));
  const modules = await Promise.all(files.map((name) => import(root + name) as Promise<Record<string, unknown>>));
  return modules
    .flatMap((exports) => Object.values(exports) as DescService[])
    .filter((desc) => desc?.kind === "service");
}

test("every method of the contracts has a row, and no row is for a method that is gone", async () => {
  const services = await readServices();
  const methods = services.flatMap((service) => service.methods.map((method) => `${service.typeName}/${method.name}`));

  expect(methods.length).toBeGreaterThan(30);
  expect(Object.keys(ROLE_TABLE).toSorted()).toEqual(methods.toSorted());
});

test("an admin may call everything", () => {
  for (const [method, roles] of Object.entries(ROLE_TABLE)) expect(roles, method).toContain("admin");
});

const transport = createInProcessTransport(
  (router) => {
    router.service(RunService, { getRun: () => ({}), cancelRun: () => ({}) });
    router.service(TenantService, { getPrincipal: () => ({}) });
    healthRoutes(createHealthState())(router);
  },
  { interceptors: [errorInterceptor({ log: silentLog }), authorize()] },
);
const runs = createClient(RunService, transport);

function as(...roles: Role[]) {
  const principal = { tenantId: 1, tenant: "t", name: "n", roles };
  return { contextValues: createContextValues().set(principalKey, principal) };
}

async function reasonOf(call: Promise<unknown>): Promise<number | undefined> {
  const error = await call.then(
    () => undefined,
    (caught: unknown) => caught,
  );
  return error instanceof ConnectError ? findErrorDetail(error)?.reason : undefined;
}

test("a role calls what its row allows and nothing else", async () => {
  expect(await reasonOf(runs.getRun({}, as("viewer")))).toBeUndefined();
  expect(await reasonOf(runs.cancelRun({}, as("viewer")))).toBe(Reason.FORBIDDEN);
  expect(await reasonOf(runs.cancelRun({}, as("viewer", "operator")))).toBeUndefined();
  expect(await reasonOf(runs.getRun({}, as("worker")))).toBe(Reason.FORBIDDEN);
  expect(await reasonOf(createClient(TenantService, transport).getPrincipal({}, as("worker")))).toBeUndefined();
  expect(await reasonOf(runs.getRun({}, as()))).toBe(Reason.FORBIDDEN);
});

test("a call without a principal is unauthenticated, but for health", async () => {
  expect(await reasonOf(runs.getRun({}))).toBe(Reason.UNAUTHENTICATED);
  expect((await createClient(Health, transport).check({})).status).toBe(2);
});

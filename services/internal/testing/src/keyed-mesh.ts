import type { DescService } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { createServiceClient, createTransport, type MeshTransport } from "@runmesh/client/internal";
import { LeaseService } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { RunService } from "@runmesh/contracts/run/v1/run_service_pb";
import { TaskService } from "@runmesh/contracts/task/v1/task_service_pb";
import type { Role } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { TenantService } from "@runmesh/contracts/tenant/v1/tenant_service_pb";
import { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import { bootstrapKey } from "@runmesh/standalone/maintenance";
import { type Standalone, type StandaloneOptions, startStandalone } from "@runmesh/standalone/standalone";
import { type Db, openDb } from "@runmesh/store/db";
import { type TestDatabase, useDatabase } from "./database.ts";
import { createGiven, type Given } from "./given.ts";
import { type Attach, attachWorker, type MeshWorker } from "./mesh-worker.ts";

/** Clients of one credential, or of none. They reject with `MeshError` and never repeat a call. */
export interface Caller {
  readonly key: string | undefined;
  readonly runs: Client<typeof RunService>;
  readonly workflows: Client<typeof WorkflowService>;
  readonly tasks: Client<typeof TaskService>;
  readonly leases: Client<typeof LeaseService>;
  readonly tenants: Client<typeof TenantService>;
  readonly given: Given;
  client<S extends DescService>(service: S): Client<S>;
}

/** A whole mesh that wants keys. */
export interface KeyedMesh extends AsyncDisposable {
  readonly url: string;
  readonly standalone: Standalone;
  readonly db: Db;
  readonly databaseUrl: string;
  /** The system's admin, by the bootstrapped key. */
  readonly admin: Caller;
  as(key: string | undefined): Caller;
  /** Makes a tenant and answers its admin. */
  tenant(name: string): Promise<Caller>;
  /** A worker driven by hand. Closed with the mesh. */
  worker(caller: Caller, attach?: Attach): Promise<MeshWorker>;
  /** Makes a key of the maker's tenant. */
  key(maker: Caller, ...roles: readonly Role[]): Promise<Caller & { readonly id: string; readonly key: string }>;
}

const CALLS = { timeoutMs: 30_000, attempts: 1 };
const ADMIN = 5;

export async function startKeyedMesh(options: StandaloneOptions = {}): Promise<KeyedMesh> {
  const database =
    options.databaseUrl === undefined ? await useDatabase({ size: 4 }) : await useOther(options.databaseUrl);
  const standalone = await startStandalone({
    port: 0,
    databaseUrl: database.url,
    logLevel: "silent",
    authentication: "keys",
    ...options,
  });
  const transports: MeshTransport[] = [];
  const workers: MeshWorker[] = [];
  let keyCount = 0;

  function as(key: string | undefined): Caller {
    const transport = createTransport({ url: standalone.url, ...(key !== undefined && { apiKey: key }) });
    transports.push(transport);
    const client = <S extends DescService>(service: S) => createServiceClient(service, transport, CALLS);
    const [runs, workflows] = [client(RunService), client(WorkflowService)];
    return {
      key,
      runs,
      workflows,
      tasks: client(TaskService),
      leases: client(LeaseService),
      tenants: client(TenantService),
      given: createGiven({ runs, workflows }),
      client,
    };
  }

  const { secret } = await bootstrapKey({ databaseUrl: database.url, name: "first" });
  const admin = as(secret);

  return {
    url: standalone.url,
    standalone,
    db: database.db,
    databaseUrl: database.url,
    admin,
    as,
    async tenant(name) {
      await admin.tenants.createTenant({ name });
      const made = await admin.tenants.createApiKey({ name: "admin", roles: [ADMIN], tenant: name });
      return as(made.secret);
    },
    async key(maker, ...roles) {
      const made = await maker.tenants.createApiKey({ name: `key-${++keyCount}`, roles: [...roles] });
      return { ...as(made.secret), id: made.key!.id, key: made.secret };
    },
    async worker(caller, attach = {}) {
      const worker = await attachWorker(caller.leases, attach);
      workers.push(worker);
      return worker;
    },
    async [Symbol.asyncDispose]() {
      for (const worker of workers) worker.close();
      for (const transport of transports) transport.close();
      await standalone.stop();
      await database.close();
    },
  };
}

/** A database that outlives the mesh: it is the test's to drop. */
async function useOther(url: string): Promise<Pick<TestDatabase, "url" | "db" | "close">> {
  const db = openDb({ url, size: 4, purpose: "general", applicationName: "runmesh-test" });
  return { url, db, close: () => db.close() };
}

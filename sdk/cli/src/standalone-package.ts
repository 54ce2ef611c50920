/**
 * What the command uses of @runmesh/standalone. It is loaded by a name that the compiler does not follow: the package
 * runs from its source, brings a database along, and only `dev`, `migrate` and `doctor` need it. A test holds these
 * interfaces and the package together.
 */
export interface Standalone {
  readonly url: string;
  readonly dataDir: string | undefined;
  readonly databaseUrl: string;
  stop(): Promise<void>;
  doctor(): Promise<Finding[]>;
}

export interface StandaloneOptions {
  readonly host?: string;
  readonly port?: number;
  readonly dataDir?: string;
  readonly databaseUrl?: string;
  readonly logLevel?: LogLevel;
}

export type LogLevel = "silent" | "error" | "warn" | "info" | "debug";

export interface Finding {
  readonly check: string;
  readonly severity: "error" | "warning";
  readonly count: number;
  readonly examples: readonly string[];
  readonly advice: string;
}

export interface StandaloneModule {
  startStandalone(options: StandaloneOptions): Promise<Standalone>;
}

export interface MaintenanceModule {
  migrate(options: { readonly databaseUrl: string }): Promise<{ readonly applied: readonly string[] }>;
  doctor(options: { readonly databaseUrl: string }): Promise<Finding[]>;
}

const PACKAGE = "@runmesh/standalone";

export function loadStandalone(): Promise<StandaloneModule> {
  return import(`${PACKAGE}/standalone`);
}

export function loadMaintenance(): Promise<MaintenanceModule> {
  return import(`${PACKAGE}/maintenance`);
}

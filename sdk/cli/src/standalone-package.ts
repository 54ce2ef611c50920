/**
 * What the command uses of @runmesh/standalone. It is loaded by a name that the compiler does not follow: the package
 * runs from its source, brings a database along, and only `dev`, `start`, `migrate`, `doctor` and the first key need it.
 * A test holds these interfaces and the package together.
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
  readonly pgbouncerUrl?: string;
  readonly logLevel?: LogLevel;
  readonly authentication?: "local" | "keys";
  readonly keySecret?: string;
  readonly keepRunsMs?: number;
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
  bootstrapKey(
    options: BootstrapOptions,
  ): Promise<{ readonly id: string; readonly name: string; readonly secret: string }>;
  hasAdminKey(options: { readonly databaseUrl: string }): Promise<boolean>;
}

export interface BootstrapOptions {
  readonly databaseUrl: string;
  readonly name: string;
  readonly keySecret?: string;
  readonly force?: boolean;
}

const PACKAGE = "@runmesh/standalone";

export function loadStandalone(): Promise<StandaloneModule> {
  return import(`${PACKAGE}/standalone`);
}

export function loadMaintenance(): Promise<MaintenanceModule> {
  return import(`${PACKAGE}/maintenance`);
}

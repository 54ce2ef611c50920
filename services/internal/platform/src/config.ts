/** How one setting is read. */
export interface Setting<T> {
  /** Said in the error when it is missing or wrong, as in `a port between 0 and 65535`. */
  readonly expects: string;
  /** Undefined when the text is not what is expected. */
  readonly read: (text: string) => T | undefined;
  /** Taken when the variable is unset or empty; a setting without one is required. */
  readonly fallback?: T;
}

export type ConfigSpec = Readonly<Record<string, Setting<unknown>>>;
export type Config<S extends ConfigSpec> = { readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never };

/** Every fault of the settings in one error, each naming its variable and never the value: it may be a secret. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly faults: readonly string[];

  constructor(faults: readonly string[]) {
    super(`the settings are wrong:\n${faults.map((fault) => `  ${fault}`).join("\n")}`);
    this.faults = faults;
  }
}

/**
 * Reads settings from the environment, once, in a main.ts: `{ RUNMESH_PORT: port({ fallback: 7600 }) }` gives
 * `{ RUNMESH_PORT: number }`. A variable that begins with RUNMESH_ and is in no spec is a fault too, since a
 * misspelled setting would go unnoticed; name those that others read in `alsoKnown`.
 */
export function readConfig<S extends ConfigSpec>(
  spec: S,
  env: Readonly<Record<string, string | undefined>>,
  alsoKnown: readonly string[] = [],
): Config<S> {
  const faults: string[] = [];
  const config: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(spec)) {
    const text = env[name];
    if (text === undefined || text === "") {
      if ("fallback" in setting) config[name] = setting.fallback;
      else faults.push(`${name} is missing: it must be ${setting.expects}`);
      continue;
    }
    const value = setting.read(text);
    if (value === undefined) faults.push(`${name} must be ${setting.expects}`);
    else config[name] = value;
  }
  for (const name of Object.keys(env)) {
    if (name.startsWith("RUNMESH_") && !(name in spec) && !alsoKnown.includes(name)) {
      faults.push(`${name} is not a setting of this service`);
    }
  }
  if (faults.length > 0) throw new ConfigError(faults);
  return config as Config<S>;
}

interface Fallback<T> {
  readonly fallback?: T;
}

export function text(options: Fallback<string> & { readonly expects?: string } = {}): Setting<string> {
  return { expects: "some text", read: (value) => value, ...options };
}

export function integer(options: Fallback<number> & { readonly min: number; readonly max: number }): Setting<number> {
  const { min, max, ...fallback } = options;
  return {
    expects: `a whole number from ${min} to ${max}`,
    read(value) {
      const number = /^-?\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
      return number >= min && number <= max ? number : undefined;
    },
    ...fallback,
  };
}

export function port(options: Fallback<number> = {}): Setting<number> {
  return integer({ min: 0, max: 65_535, ...options });
}

export function flag(options: Fallback<boolean> = {}): Setting<boolean> {
  const values: Partial<Record<string, boolean>> = { true: true, "1": true, false: false, "0": false };
  return { expects: "true or false", read: (value) => values[value.toLowerCase()], ...options };
}

export function oneOf<const T extends string>(names: readonly T[], options: Fallback<T> = {}): Setting<T> {
  return { expects: `one of ${names.join(", ")}`, read: (value) => names.find((name) => name === value), ...options };
}

export function url(protocols: readonly string[], options: Fallback<string> = {}): Setting<string> {
  return {
    expects: `a URL that begins with ${protocols.map((protocol) => `${protocol}://`).join(" or ")}`,
    read: (value) => (protocols.includes(URL.parse(value)?.protocol.slice(0, -1) ?? "") ? value : undefined),
    ...options,
  };
}

/** At least 32 bytes: shorter secrets of a signature can be guessed. */
export function secret(options: Fallback<string> = {}): Setting<string> {
  return {
    expects: "a secret of at least 32 bytes",
    read: (value) => (Buffer.byteLength(value) >= 32 ? value : undefined),
    ...options,
  };
}

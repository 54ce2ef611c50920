/**
 * References stand for values that will exist when the run gets there. At run time each is a Proxy whose fields are
 * references again; `readReference` finds what it points at. Every accidental use as a value throws at once.
 */

declare const REF: unique symbol;
// biome-ignore lint/complexity/noBannedTypes: the way to ask whether a key is optional.
type Optional<T, K extends keyof T> = {} extends Pick<T, K> ? undefined : never;

/** A value that will exist when the run gets there. It stands wherever a T may stand in params. */
export type Ref<T> = { readonly [REF]: T } & Fields<NonNullable<T>, undefined extends T ? undefined : never>;

type Fields<T, U> = T extends readonly (infer E)[]
  ? { readonly [i: number]: Ref<E | undefined> }
  : T extends object
    ? { readonly [K in keyof T]-?: Ref<T[K] | Optional<T, K> | U> }
    : unknown;

/** T, or a Ref of it at any depth. */
export type Wire<T> =
  | Ref<T>
  | (T extends readonly (infer E)[]
      ? readonly Wire<E>[]
      : T extends object
        ? { readonly [K in keyof T]: Wire<T[K]> }
        : T);

/** What a wired value becomes when its references are resolved. */
export type Resolved<W> = W extends { readonly [REF]: infer T }
  ? T
  : W extends readonly (infer E)[]
    ? Resolved<E>[]
    : W extends object
      ? { -readonly [K in keyof W]: Resolved<W[K]> }
      : W;

/** What a reference points at. */
export interface Reference {
  /** As in `#/tasks/charge/output/chargeId`: a JSON Pointer after the `#`. */
  readonly pointer: string;
  /** The definition it was made for: one that is used in another is a mistake. */
  readonly owner: object;
  /** Set by `orElse`. */
  readonly fallback?: { readonly value: unknown };
}

const targets = new WeakMap<object, Reference>();

/** Creates the reference that a definition hands to its author. */
export function createReference<T>(reference: Reference): Ref<T> {
  const shown = Object.freeze({ $ref: reference.pointer });
  const proxy = new Proxy<object>(shown, {
    get(_, property) {
      if (property === Symbol.toPrimitive || property === Symbol.iterator || GUARDED.has(property)) {
        return () => refuse(reference);
      }
      // No `then`: awaiting a reference by mistake must not hang.
      if (typeof property === "symbol" || property === "then") return undefined;
      return createReference(field(reference, property));
    },
    has: () => refuse(reference),
    ownKeys: () => refuse(reference),
    set: () => refuse(reference),
    defineProperty: () => refuse(reference),
    deleteProperty: () => refuse(reference),
  });
  targets.set(proxy, reference);
  return proxy as Ref<T>;
}

/** A reference that may find nothing gets a value to fall back on. */
export function orElse<T>(ref: Ref<T>, fallback: NonNullable<T>): Ref<NonNullable<T>> {
  const reference = readReference(ref);
  if (reference === undefined) throw new TypeError("orElse takes a reference and the value to fall back on");
  return createReference({ ...reference, fallback: { value: fallback } });
}

export function readReference(value: unknown): Reference | undefined {
  return typeof value === "object" && value !== null ? targets.get(value) : undefined;
}

/** Escapes one token of a JSON Pointer. */
export function pointerToken(token: string): string {
  return token.replaceAll("~", "~0").replaceAll("/", "~1");
}

function field(reference: Reference, name: string): Reference {
  const pointer = `${reference.pointer}/${pointerToken(name)}`;
  const outer = reference.fallback?.value;
  if (typeof outer !== "object" || outer === null || !Object.hasOwn(outer, name)) {
    return { pointer, owner: reference.owner };
  }
  return { pointer, owner: reference.owner, fallback: { value: (outer as Record<string, unknown>)[name] } };
}

const GUARDED: ReadonlySet<string | symbol> = new Set(["toJSON", "toString", "valueOf", "toLocaleString"]);

function refuse(reference: Reference): never {
  throw new TypeError(
    `the reference ${reference.pointer} has no value while the graph is built: pass it on as it is in a task's ` +
      "params, and work with its value in that task's handler",
  );
}

import { invalidField } from "@runmesh/domain/errors";

/** The services that a scope may name, by the package of their contract. */
export const SCOPE_NOUNS = ["workflow", "run", "task", "lease", "schedule", "artifact", "backfill", "tenant"] as const;

const MAX_SCOPES = 16;
const READING = /^(Get|List|Watch)[A-Z]/;
const ALWAYS = "runmesh.tenant.v1.TenantService/GetPrincipal";

/** Whether a method only reads, which is told by its name. */
export function isReading(method: string): boolean {
  return READING.test(method.slice(method.indexOf("/") + 1));
}

/** The noun of a method's contract, as in `run` of `runmesh.run.v1.RunService/GetRun`. */
export function nounOf(method: string): string {
  return method.split(".")[1] ?? "";
}

/** Whether scopes let a method through. None narrow nothing; whoever calls may always ask who it is. */
export function coversMethod(scopes: readonly string[], method: string): boolean {
  if (scopes.length === 0 || method === ALWAYS) return true;
  const noun = nounOf(method);
  return scopes.includes(noun) || (isReading(method) && scopes.includes(`${noun}:read`));
}

/** Whether scopes let through no more than others do. */
export function isWithin(scopes: readonly string[], others: readonly string[]): boolean {
  if (others.length === 0) return true;
  const covers = (scope: string) => others.includes(scope) || others.includes(scope.replace(/:read$/, ""));
  return scopes.length > 0 && scopes.every(covers);
}

/** Throws INVALID_FIELD for what is no scope. Answers them sorted and once each. */
export function readScopes(scopes: readonly string[], field: string): string[] {
  if (scopes.length > MAX_SCOPES) throw invalidField(field, `a key has at most ${MAX_SCOPES}`);
  for (const [i, scope] of scopes.entries()) {
    const noun = scope.endsWith(":read") ? scope.slice(0, -":read".length) : scope;
    if (SCOPE_NOUNS.some((known) => known === noun)) continue;
    throw invalidField(`${field}[${i}]`, `must be one of ${SCOPE_NOUNS.join(", ")}, alone or with ":read"`);
  }
  return [...new Set(scopes)].sort();
}

import { canonicalJson, readJson } from "./json-text.ts";
import { findKeyFault } from "./names.ts";
import { compileTemplate, mayHoldReferences, resolveTemplate } from "./references.ts";

export type KeyResolution = { readonly ok: true; readonly key: string } | { readonly ok: false; readonly why: string };

/**
 * The key that a run's or task's limit is shared by. A key that is JSON text with references is filled in from the
 * run's input (JSON text; undefined stands for null): text that results is the key itself, any other value its
 * canonical JSON, so that 7 and 7.0 share a limit.
 */
export function resolveConcurrencyKey(key: string, input: string | undefined): KeyResolution {
  if (!mayHoldReferences(key) || !readJson(key).ok) return { ok: true, key };
  const template = compileTemplate(key);
  if (template.isConstant) return { ok: true, key };
  const resolution = resolveTemplate(template, { input: () => input, output: () => undefined });
  if (!resolution.ok)
    return { ok: false, why: `the concurrency key's ${resolution.reference} is ${WHY[resolution.why]}` };
  const value: unknown = JSON.parse(resolution.text);
  const resolved = typeof value === "string" ? value : canonicalJson(resolution.text);
  const fault = findKeyFault(resolved);
  return fault === undefined ? { ok: true, key: resolved } : { ok: false, why: `the concurrency key ${fault}` };
}

const WHY = { missing: "not in the input", too_large: "too large" } as const;

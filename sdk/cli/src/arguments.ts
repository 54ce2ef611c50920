import { InvalidArgumentError } from "commander";

/** Readers of single arguments and options; what they throw, commander reports as wrong usage. */

const MAX_ID = 2n ** 63n - 1n;

export function readId(text: string): bigint {
  if (/^[1-9][0-9]{0,18}$/.test(text) && BigInt(text) <= MAX_ID) return BigInt(text);
  throw new InvalidArgumentError("An id is a positive whole number.");
}

export function readSequence(text: string): bigint {
  return text === "0" ? 0n : readId(text);
}

/** A whole number within limits. */
export function readCount(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
  };
}

/** How many times as long as it was measured: 0 sleeps not at all. */
export function readScale(text: string): number {
  const value = /^[0-9]+(\.[0-9]+)?$/.test(text) ? Number(text) : Number.NaN;
  if (value <= 1_000) return value;
  throw new InvalidArgumentError("It must be a number from 0 to 1000, as in 0.05.");
}

/** Collects `--label key=value`, given any number of times. */
export function readLabel(text: string, before: Record<string, string> = {}): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("A label is given as key=value.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

export interface WorkflowTarget {
  readonly workflow: string;
  /** 0 means the newest. */
  readonly version: number;
}

/** "order" or, for one version, "order@3". */
export function readWorkflow(text: string): WorkflowTarget {
  const [, workflow, version = "0"] = /^([^@]+?)(?:@([0-9]{1,9}))?$/.exec(text) ?? [];
  if (workflow === undefined) throw new InvalidArgumentError("A workflow is given as NAME or NAME@VERSION.");
  return { workflow, version: Number(version) };
}

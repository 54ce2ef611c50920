import { MeshError, type Reason, type Violation } from "./errors.ts";

const MAX_VIOLATIONS = 20;

const MAX_QUOTED = 128;

/** Collects what is wrong with a request, so that the caller learns of it at once; at most 20 are kept. */
export class Faults {
  readonly #violations: Violation[] = [];

  /** Nothing more is kept, so there is no need to look for more. */
  get isFull(): boolean {
    return this.#violations.length >= MAX_VIOLATIONS;
  }

  add(field: string, description: string, reason: Reason = "INVALID_FIELD"): void {
    if (!this.isFull) this.#violations.push({ field, reason, description });
  }

  /** Adds a fault where there is one. */
  check(description: string | undefined, field: string, name: string, reason?: Reason): void {
    if (description !== undefined) this.add(`${field}.${name}`, description, reason);
  }

  /** Throws one error with all of them; its reason is the first one's. */
  throwIfAny(): void {
    const [first] = this.#violations;
    if (first === undefined) return;
    const others = this.#violations.length - 1;
    const more = others === 0 ? "" : ` (and ${others} more)`;
    throw new MeshError(first.reason, `${first.field}: ${first.description}${more}`, { violations: this.#violations });
  }
}

/** Text of a caller's for a message: in quotes, escaped, and cut. */
export function quote(text: string): string {
  return text.length <= MAX_QUOTED ? JSON.stringify(text) : `${JSON.stringify(text.slice(0, MAX_QUOTED))}…`;
}

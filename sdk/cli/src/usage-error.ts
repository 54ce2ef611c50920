/** The command cannot be carried out as it was given: exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
  /** What to do instead, in one sentence. */
  readonly advice: string | undefined;

  constructor(message: string, options: { readonly advice?: string; readonly cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.advice = options.advice;
  }
}

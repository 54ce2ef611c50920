/** What a forked process of the bench answers to: a name, one argument, one result, all of them JSON. */
export type Calls = Readonly<Record<string, (argument: never) => unknown>>;

export interface CallMessage {
  readonly id: number;
  readonly name: string;
  readonly argument: unknown;
}

export type AnswerMessage =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: string };

/** Serves calls of the parent until the channel closes, which ends the process. */
export function serveCalls(calls: Calls): void {
  process.on("message", (message: CallMessage) => void answer(calls, message));
  process.on("disconnect", () => process.exit());
  process.send?.({ id: 0, result: "ready" } satisfies AnswerMessage);
}

async function answer(calls: Calls, { id, name, argument }: CallMessage): Promise<void> {
  try {
    const call = calls[name];
    if (call === undefined) throw new Error(`no call ${name}`);
    process.send?.({ id, result: await call(argument as never) } satisfies AnswerMessage);
  } catch (error) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    process.send?.({ id, error: text } satisfies AnswerMessage);
  }
}

import type { Durable } from "../src/durable.ts";

/** What a handler does: calls, one after the other, side by side, or in a race. */
export type Program =
  | { readonly kind: "step" | "failing" | "fragile" | "sleep" | "signal" | "child"; readonly name: string }
  | { readonly kind: "all" | "race" | "sequence"; readonly parts: readonly Program[] }
  /** A step that follows a failure, which goes on. */
  | { readonly kind: "noted"; readonly name: string; readonly parts: readonly Program[] };

export type Random = () => number;

/** The same numbers for the same seed. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const CALLS = ["step", "step", "step", "sleep", "signal", "child", "failing", "fragile"] as const;
const FORMS = ["all", "all", "race", "sequence", "noted"] as const;

const pick = <T>(random: Random, items: readonly T[]): T => items[Math.floor(random() * items.length)]!;

export function createProgram(random: Random): Program {
  let count = 0;
  const create = (depth: number): Program => {
    if (depth > 0 && random() < 0.55) {
      const parts = Array.from({ length: 1 + Math.floor(random() * 4) }, () => create(depth - 1));
      return { kind: pick(random, FORMS), name: `note-${count++}`, parts };
    }
    const kind = pick(random, CALLS);
    return { kind, name: `${kind}-${count++}` };
  };
  return { kind: "sequence", parts: [create(3), create(3), create(3)] };
}

/** Runs it as a handler would. `work` is what its steps do; what it throws of a fragile one ends the handler. */
export async function runProgram(
  ctx: Durable,
  program: Program,
  work: (name: string) => Promise<void>,
): Promise<unknown> {
  const run = (part: Program) => runProgram(ctx, part, work);
  switch (program.kind) {
    case "all":
      return Promise.all(program.parts.map(run));
    case "race":
      return Promise.race(program.parts.map(run));
    case "noted":
      return Promise.all(program.parts.map(run)).catch(async (error: Error) => {
        await ctx.step(program.name, () => work(program.name));
        throw error;
      });
    case "sequence": {
      const answers: unknown[] = [];
      for (const part of program.parts) answers.push(await run(part));
      return answers;
    }
    case "step":
      return ctx.step(program.name, () => work(program.name).then(() => program.name));
    case "failing":
      return ctx
        .step(program.name, () => work(program.name).then(() => Promise.reject(new Error(program.name))))
        .catch((error: Error) => ctx.step(`after ${error.message}`, () => "caught"));
    case "fragile":
      return ctx.step(program.name, () => work(program.name));
    case "sleep":
      return ctx.sleep("20s");
    case "signal":
      return ctx.waitForSignal(program.name);
    case "child":
      return (await ctx.startRun(program.name)).result();
  }
}

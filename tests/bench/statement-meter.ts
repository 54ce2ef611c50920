import pg from "pg";

/** Of one named statement, since the meter began: calls, and milliseconds from when it was sent until it was answered. */
export interface StatementTime {
  readonly name: string;
  readonly text: string;
  readonly count: number;
  readonly ms: number;
}

/** Times every statement of this process. */
export function meterStatements(): () => StatementTime[] {
  const times = new Map<string, { text: string; count: number; ms: number }>();
  const prototype = pg.Client.prototype as unknown as { query: (...args: unknown[]) => unknown };
  const query = prototype.query;
  prototype.query = function (this: unknown, ...args: unknown[]) {
    const config = args[0] as { name?: string; text?: string } | string;
    const text = typeof config === "string" ? config : (config.text ?? "");
    const name = typeof config === "string" ? config : (config.name ?? text);
    const startedAt = performance.now();
    const answer = query.apply(this, args);
    if (answer instanceof Promise) {
      const end = () => {
        const time = times.get(name) ?? { text, count: 0, ms: 0 };
        times.set(name, { text, count: time.count + 1, ms: time.ms + performance.now() - startedAt });
      };
      answer.then(end, end);
    }
    return answer;
  };
  return () => {
    const all = [...times].map(([name, { text, count, ms }]) => ({
      name: name.slice(0, 60),
      text: text.trim(),
      count,
      ms,
    }));
    times.clear();
    return all.sort((a, b) => b.ms - a.ms);
  };
}

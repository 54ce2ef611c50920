import { expect, test } from "vitest";
import { summarize } from "./statement-cpu.ts";

const block = (message: string, user: string, system: string, statement: string) =>
  [
    `2026-12-01 01:00:00.000 UTC [7] LOG:  ${message} STATISTICS`,
    "2026-12-01 01:00:00.000 UTC [7] DETAIL:  ! system usage stats:",
    `\t!\t${user} s user, ${system} s system, 0.900000 s elapsed`,
    "\t!\t[0.1 s user, 0.1 s system total]",
    `2026-12-01 01:00:00.000 UTC [7] STATEMENT:  ${statement}`,
    "",
  ].join("\n");

test("the parse, bind and execute of a statement are summed, and only executes are calls", () => {
  const log =
    block("PARSE MESSAGE", "0.000010", "0.000000", "\n\t  SELECT 1") +
    block("BIND MESSAGE", "0.000020", "0.000001", "\n\t  SELECT 1") +
    block("EXECUTE MESSAGE", "0.000300", "0.000004", "\n\t  SELECT 1") +
    block("EXECUTE MESSAGE", "0.000500", "0.000000", "\n\t  SELECT 1");

  const [statement, ...others] = summarize(log);

  expect(others).toEqual([]);
  expect(statement).toMatchObject({ text: "SELECT 1", calls: 2 });
  expect(statement!.micros).toBeCloseTo(835, 6);
});

test("the statement that used the most comes first, and other lines of the log are passed over", () => {
  const log = `${block("EXECUTE MESSAGE", "0.000001", "0", "SELECT 1")}2026-12-01 01:00:00.000 UTC [9] LOG:  checkpoint starting: time\n${block("EXECUTE MESSAGE", "0.000002", "0", "SELECT 2")}`;

  expect(summarize(log).map(({ text }) => text)).toEqual(["SELECT 2", "SELECT 1"]);
});

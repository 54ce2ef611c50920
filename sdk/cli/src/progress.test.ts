import { expect, test } from "vitest";
import { createProgress, formatBar } from "./progress.ts";
import type { Terminal } from "./terminal.ts";

function watchTerminal(isInteractive: boolean) {
  const written: string[] = [];
  const terminal: Terminal = {
    out: (line) => void written.push(`out ${line}`),
    note: (line) => void written.push(`note ${line}`),
    draw: (text) => void written.push(`draw ${text}`),
    isInteractive,
    columns: 10,
  };
  return { written, terminal };
}

test("a terminal gets one line, drawn over at most ten times a second and cut to its width", () => {
  const { written, terminal } = watchTerminal(true);
  let now = 0;
  const progress = createProgress(terminal, () => now);

  progress.update("one");
  now = 99;
  progress.update("two");
  now = 100;
  progress.update("three and more");
  progress.clear();
  progress.clear();

  expect(written).toEqual(["draw \r\x1b[2Kone", "draw \r\x1b[2Kthree and", "draw \r\x1b[2K"]);
});

test("elsewhere a plain line comes at most each second, and none twice", () => {
  const { written, terminal } = watchTerminal(false);
  let now = 0;
  const progress = createProgress(terminal, () => now);

  progress.update("one");
  now = 999;
  progress.update("two");
  now = 1_500;
  progress.update("one");
  progress.update("three and more");
  progress.clear();

  expect(written).toEqual(["note one", "note three and more"]);
});

test("elsewhere lines come the rarer the longer it takes: an hour is told in less than 200, a minute in 30", () => {
  const { written, terminal } = watchTerminal(false);
  let now = 0;
  const progress = createProgress(terminal, () => now);

  for (; now <= 60_000; now += 200) progress.update(`after ${now} ms`);
  const minute = written.length;
  for (; now <= 3_600_000; now += 200) progress.update(`after ${now} ms`);

  expect(minute).toBeGreaterThan(25);
  expect(minute).toBeLessThanOrEqual(30);
  expect(written.length).toBeLessThan(200);
});

test("a bar is as full as the work is done, and full only at the end", () => {
  expect(formatBar(0, 10, 5)).toBe("░░░░░");
  expect(formatBar(9, 10, 5)).toBe("████░");
  expect(formatBar(10, 10, 5)).toBe("█████");
  expect(formatBar(0, 0, 5)).toBe("░░░░░");
});

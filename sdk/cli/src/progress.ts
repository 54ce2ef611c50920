import type { Terminal } from "./terminal.ts";

/** Live progress on stderr: one line drawn over on a terminal; elsewhere plain lines, the rarer the longer it takes. */
export interface Progress {
  update(line: string): void;
  /** Takes the drawn line away, so that what follows starts on a line of its own. */
  clear(): void;
}

const DRAW_EVERY_MS = 100;
const LINE_EVERY_MS = 1_000;
/** A log of a day's wait stays short: the next line comes when a tenth of the time so far has passed again. */
const RAREST_LINE_MS = 30_000;
const ERASE = "\r\x1b[2K";

export function createProgress(terminal: Terminal, now: () => number = () => performance.now()): Progress {
  let startedAt: number | undefined;
  let shownAt = Number.NEGATIVE_INFINITY;
  let shown = "";

  return {
    update(line) {
      const at = now();
      startedAt ??= at;
      const every = terminal.isInteractive
        ? DRAW_EVERY_MS
        : Math.min(RAREST_LINE_MS, Math.max(LINE_EVERY_MS, (at - startedAt) / 10));
      if (line === shown || at - shownAt < every) return;
      shownAt = at;
      shown = line;
      if (terminal.isInteractive) terminal.draw(ERASE + line.slice(0, terminal.columns - 1));
      else terminal.note(line);
    },
    clear() {
      if (terminal.isInteractive && shown !== "") terminal.draw(ERASE);
      shown = "";
      startedAt = undefined;
    },
  };
}

/** For `--json` and wherever nobody watches. */
export const NO_PROGRESS: Progress = { update() {}, clear() {} };

/** "██████░░░░" of the share that is done. */
export function formatBar(done: number, total: number, width = 24): string {
  const full = total === 0 ? 0 : Math.floor((Math.min(done, total) / total) * width);
  return "█".repeat(full) + "░".repeat(width - full);
}

import type { Terminal } from "./terminal.ts";

/** Live progress on stderr: one line drawn over on a terminal, a plain line about every second elsewhere. */
export interface Progress {
  update(line: string): void;
  /** Takes the drawn line away, so that what follows starts on a line of its own. */
  clear(): void;
}

const DRAW_EVERY_MS = 100;
const LINE_EVERY_MS = 1_000;
const ERASE = "\r\x1b[2K";

export function createProgress(terminal: Terminal, now: () => number = () => performance.now()): Progress {
  const every = terminal.isInteractive ? DRAW_EVERY_MS : LINE_EVERY_MS;
  let shownAt = Number.NEGATIVE_INFINITY;
  let shown = "";

  return {
    update(line) {
      if (line === shown || now() - shownAt < every) return;
      shownAt = now();
      shown = line;
      if (terminal.isInteractive) terminal.draw(ERASE + line.slice(0, terminal.columns - 1));
      else terminal.note(line);
    },
    clear() {
      if (terminal.isInteractive && shown !== "") terminal.draw(ERASE);
      shown = "";
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

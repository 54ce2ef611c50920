/** Where a command writes: results to stdout, everything for people's eyes only to stderr. */
export interface Terminal {
  /** A line of result. */
  out(line: string): void;
  /** A line beside the result. */
  note(line: string): void;
  /** Writes to the same place as `note`, without ending the line. */
  draw(text: string): void;
  /** A person watches: one line may be drawn over and over. */
  readonly isInteractive: boolean;
  readonly columns: number;
}

export function createProcessTerminal(): Terminal {
  const { stdout, stderr } = process;
  return {
    out: (line) => void stdout.write(`${line}\n`),
    note: (line) => void stderr.write(`${line}\n`),
    draw: (text) => void stderr.write(text),
    isInteractive: stderr.isTTY === true && process.env.TERM !== "dumb",
    columns: stderr.columns ?? 80,
  };
}

/**
 * Makes text that others wrote harmless for a terminal: control characters, escape sequences among them, are shown as
 * \xNN, so that a log line or an error cannot move the cursor or repaint the screen.
 */
export function printable(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, (character) => {
    const code = character.charCodeAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
  });
}

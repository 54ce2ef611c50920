import { type Column, formatTable } from "./table.ts";
import type { Terminal } from "./terminal.ts";

/** Prints results as tables for people or as JSON for scripts. */
export interface Printer {
  readonly json: boolean;
  /** One thing: one JSON object, or the lines given. */
  one(value: unknown, lines: () => readonly string[]): void;
  /** Many things: one JSON object a line, or a table. */
  list<T>(rows: readonly T[], toJson: (row: T) => unknown, columns: readonly Column<T>[]): void;
  /** One message of a stream: a JSON object on a line, or the line given. */
  entry(value: unknown, line: () => string): void;
  /** Beside the result, for people: nothing with `--json`. */
  note(line: string): void;
  /** How to see what a list has left out; on stderr, as a JSON object with `--json`. */
  nextPage(token: string): void;
}

export function createPrinter(terminal: Terminal, json: boolean): Printer {
  return {
    json,
    one(value, lines) {
      if (json) terminal.out(JSON.stringify(value));
      else for (const line of lines()) terminal.out(line);
    },
    list(rows, toJson, columns) {
      if (json) for (const row of rows) terminal.out(JSON.stringify(toJson(row)));
      else if (rows.length === 0) terminal.note("Nothing there.");
      else for (const line of formatTable(rows, columns)) terminal.out(line);
    },
    entry: (value, line) => terminal.out(json ? JSON.stringify(value) : line()),
    note(line) {
      if (!json) terminal.note(line);
    },
    nextPage(token) {
      if (token === "") return;
      terminal.note(json ? JSON.stringify({ nextPageToken: token }) : `More: --page-token ${token}`);
    },
  };
}

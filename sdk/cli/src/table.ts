import { printable } from "./terminal.ts";

export interface Column<T> {
  readonly title: string;
  readonly align?: "right";
  read(row: T): string | number;
}

/** Longest cell: what is longer ends in "…", and `--json` has it whole. */
const MAX_CELL = 80;

/** A header and one line a row, columns aligned by two spaces, nothing behind the last one. */
export function formatTable<T>(rows: readonly T[], columns: readonly Column<T>[]): string[] {
  const cells = [
    columns.map((column) => column.title),
    ...rows.map((row) => columns.map((column) => shorten(printable(String(column.read(row)))))),
  ];
  const widths = columns.map((_, at) => Math.max(...cells.map((line) => line[at]!.length)));
  return cells.map((line) =>
    line
      .map((cell, at) => (columns[at]!.align === "right" ? cell.padStart(widths[at]!) : cell.padEnd(widths[at]!)))
      .join("  ")
      .trimEnd(),
  );
}

/** "name   value" lines for one thing; entries whose value is undefined or empty are left out. */
export function formatRecord(entries: readonly (readonly [string, string | number | undefined])[]): string[] {
  const shown = entries.filter(([, value]) => value !== undefined && value !== "");
  const width = Math.max(...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${name.padEnd(width)}  ${printable(String(value))}`);
}

function shorten(cell: string): string {
  return cell.length <= MAX_CELL ? cell : `${cell.slice(0, MAX_CELL - 1)}…`;
}

/** A titled table; nothing where there are no rows. */
export function section(title: string, heads: readonly string[], body: readonly (readonly string[])[]): string[] {
  if (body.length === 0) return [];
  const widths = heads.map((head, column) => Math.max(head.length, ...body.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    `  ${row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join("  ")
      .trimEnd()}`;
  return ["", title, line(heads), line(widths.map((width) => "-".repeat(width))), ...body.map(line)];
}

import { expect, test } from "vitest";
import { formatRecord, formatTable } from "./table.ts";

test("columns are aligned, numbers to the right, with nothing behind the last", () => {
  const rows = [
    { name: "a", count: 7, note: "" },
    { name: "longer", count: 1_234, note: "x" },
  ];

  const lines = formatTable(rows, [
    { title: "NAME", read: (row) => row.name },
    { title: "COUNT", align: "right", read: (row) => row.count },
    { title: "NOTE", read: (row) => row.note },
  ]);

  expect(lines).toEqual(["NAME    COUNT  NOTE", "a           7", "longer   1234  x"]);
});

test("a cell is cut at 80 characters, and its control characters are shown", () => {
  const lines = formatTable(["\u001b[31m", "y".repeat(100)], [{ title: "TEXT", read: (row) => row }]);

  expect(lines).toEqual(["TEXT", "\\x1b[31m", `${"y".repeat(79)}…`]);
});

test("a record leaves out what is not set, and never cuts", () => {
  const lines = formatRecord([
    ["a", "x".repeat(100)],
    ["longer", undefined],
    ["b", ""],
    ["cc", 0],
  ]);

  expect(lines).toEqual([`a   ${"x".repeat(100)}`, "cc  0"]);
});

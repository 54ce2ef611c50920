import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ROLES_PAGE, renderRolesPage } from "./roles-page.ts";

test("docs/roles.md is what the role table says", () => {
  expect(readFileSync(ROLES_PAGE, "utf8"), "stale: node scripts/roles-page.ts").toBe(renderRolesPage());
});

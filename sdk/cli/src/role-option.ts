import { Role, RoleSchema } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { InvalidArgumentError } from "commander";
import { enumName } from "./json-shape.ts";

const NAMES = new Map<string, Role>(
  Object.values(RoleSchema.values)
    .filter(({ number }) => number !== Role.UNSPECIFIED)
    .map(({ number }) => [enumName(RoleSchema, number).toLowerCase(), number as Role]),
);

/** Collects `--role viewer,operator`, given any number of times. */
export function readRoles(text: string, before: readonly Role[] = []): Role[] {
  const roles = text.split(",").map((name) => {
    const role = NAMES.get(name.trim().toLowerCase());
    if (role === undefined) throw new InvalidArgumentError(`A role is one of ${[...NAMES.keys()].join(", ")}.`);
    return role;
  });
  return [...new Set([...before, ...roles])];
}

export function formatRoles(roles: readonly Role[]): string {
  return roles.map((role) => enumName(RoleSchema, role).toLowerCase()).join(" ");
}

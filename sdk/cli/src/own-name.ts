import type { Host } from "./host.ts";

/** How the command is called by whoever called it: npm says so to what it runs, as by `npx runmesh`. */
export function ownName(env: Host["env"]): string {
  return env.npm_command === undefined ? "runmesh" : "npx runmesh";
}

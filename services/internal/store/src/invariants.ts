import type { Check } from "./invariant.ts";
import { LIMIT_CHECKS } from "./limit-invariants.ts";
import { RUN_CHECKS } from "./run-invariants.ts";
import { SCHEDULE_CHECKS } from "./schedule-invariants.ts";
import { TASK_CHECKS } from "./task-invariants.ts";
import { WAIT_CHECKS } from "./wait-invariants.ts";

/** Every invariant of the state (G8), each a statement that finds what breaks it. */
export const CHECKS: readonly Check[] = [
  ...TASK_CHECKS,
  ...RUN_CHECKS,
  ...LIMIT_CHECKS,
  ...SCHEDULE_CHECKS,
  ...WAIT_CHECKS,
];

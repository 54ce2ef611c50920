import { type Run_State, Run_StateSchema } from "@runmesh/contracts/run/v1/run_pb";
import type { Command } from "commander";
import { readLabel, readWorkflow, type WorkflowTarget } from "./arguments.ts";
import { readStates } from "./state-option.ts";

/** The options that say which runs are meant. */
export interface FilterOptions {
  readonly state?: readonly Run_State[];
  readonly workflow?: WorkflowTarget;
  readonly label?: Record<string, string>;
  readonly key?: string;
}

export function addFilterOptions(command: Command): Command {
  return command
    .option("--state <states>", "only these, as in RUNNING or failed,timed_out", readStates(Run_StateSchema))
    .option("--workflow <name[@version]>", "only of this workflow", readWorkflow)
    .option("--label <key=value>", "only with this label; may be given again", readLabel)
    .option("--key <key>", "only with this idempotency key");
}

export function readFilter(options: FilterOptions) {
  return {
    states: [...(options.state ?? [])],
    workflow: options.workflow?.workflow ?? "",
    workflowVersion: options.workflow?.version ?? 0,
    labels: options.label ?? {},
    idempotencyKey: options.key ?? "",
  };
}

export function hasFilter({ state, workflow, label, key }: FilterOptions): boolean {
  return state !== undefined || workflow !== undefined || label !== undefined || key !== undefined;
}

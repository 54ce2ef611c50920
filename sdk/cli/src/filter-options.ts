import { type Run_State, Run_StateSchema } from "@runmesh/contracts/run/v1/run_pb";
import type { Command } from "commander";
import { readId, readLabel, readWorkflow, type WorkflowTarget } from "./arguments.ts";
import { readStates } from "./state-option.ts";

/** The options that say which runs are meant. */
export interface FilterOptions {
  readonly state?: readonly Run_State[];
  readonly workflow?: WorkflowTarget;
  readonly label?: Record<string, string>;
  readonly key?: string;
  readonly parent?: bigint;
}

export function addFilterOptions(command: Command): Command {
  return command
    .option("--state <states>", "only these, as in RUNNING or failed,timed_out", readStates(Run_StateSchema))
    .option("--workflow <name[@version]>", "only of this workflow", readWorkflow)
    .option("--label <key=value>", "only with this label; may be given again", readLabel)
    .option("--key <key>", "only with this idempotency key")
    .option("--parent <run>", "only those that a task of this run started", readId);
}

export function readFilter(options: FilterOptions) {
  return {
    states: [...(options.state ?? [])],
    workflow: options.workflow?.workflow ?? "",
    workflowVersion: options.workflow?.version ?? 0,
    labels: options.label ?? {},
    idempotencyKey: options.key ?? "",
    parentRunId: options.parent ?? 0n,
  };
}

export function hasFilter({ state, workflow, label, key, parent }: FilterOptions): boolean {
  return [state, workflow, label, key, parent].some((option) => option !== undefined);
}

import type { DefinitionInput, TaskDefinitionInput } from "../src/definition.ts";
import { MeshError } from "../src/errors.ts";
import { validateDefinition } from "../src/validate-definition.ts";

export const task = (key: string, options: Partial<TaskDefinitionInput> = {}): TaskDefinitionInput => ({
  key,
  handler: "work",
  ...options,
});

export const withTasks = (...tasks: TaskDefinitionInput[]): DefinitionInput => ({ name: "order", tasks });

export const withTask = (options: Partial<TaskDefinitionInput>) => withTasks(task("a", options));

export const ref = (target: string) => JSON.stringify({ v: { $ref: target } });

export const refOr = (target: string) => JSON.stringify({ v: { $ref: target, default: null } });

export function refusalOf(input: DefinitionInput): MeshError {
  try {
    validateDefinition(input);
  } catch (error) {
    if (error instanceof MeshError) return error;
    throw error;
  }
  throw new Error("the definition was accepted");
}

import { createHash } from "node:crypto";
import type { Client } from "@connectrpc/connect";
import type { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import { compileDefinition, definitionHash } from "./compile-definition.ts";
import type { AnyWorkflow } from "./define-workflow.ts";

/** A definition as the server knows it. */
export interface Registered {
  readonly version: number;
  /** The server's hash of the content: starts by it take exactly this version. */
  readonly contentHash: string;
}

/** One call per process, server and content, whatever number of meshes is connected. */
const registered = new Map<string, Promise<Registered>>();

export interface Registration {
  /** Registers the workflow if this process has not yet. The same content again answers the same version. */
  register(workflow: AnyWorkflow): Promise<Registered>;
  /** Forgets what `register` answered: the server does not know it any more. */
  forget(workflow: AnyWorkflow): void;
}

export function createRegistration(
  workflows: Client<typeof WorkflowService>,
  server: { readonly url: string; readonly apiKey?: string | undefined },
): Registration {
  const place = createHash("sha256")
    .update(`${server.url}\n${server.apiKey ?? ""}`)
    .digest("hex");
  const keyOf = (workflow: AnyWorkflow) => `${place} ${definitionHash(workflow)}`;
  return {
    register(workflow) {
      const key = keyOf(workflow);
      const known = registered.get(key);
      if (known !== undefined) return known;
      const asked = ask(workflows, workflow);
      registered.set(key, asked);
      asked.catch(() => registered.delete(key));
      return asked;
    },
    forget: (workflow) => void registered.delete(keyOf(workflow)),
  };
}

async function ask(workflows: Client<typeof WorkflowService>, workflow: AnyWorkflow): Promise<Registered> {
  const { version } = await workflows.registerWorkflow({ definition: compileDefinition(workflow) });
  if (version === undefined) throw new Error("RegisterWorkflow answered no version");
  return { version: version.version, contentHash: version.contentHash };
}

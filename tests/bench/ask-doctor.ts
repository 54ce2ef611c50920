import type { Finding } from "@runmesh/standalone/doctor";
import type { MeshSubject } from "./subjects/mesh-subject.ts";

/** What the doctor finds in a subject's state, a line each; none is a clean bill. */
export async function askDoctor({ server }: MeshSubject): Promise<string[]> {
  const findings = await server.call<Finding[]>("doctor");
  return findings.map(({ check, count, examples }) => `not so: ${check} (${count}: ${examples.join(", ")})`);
}

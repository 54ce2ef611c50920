import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { DescMethod, DescService } from "@bufbuild/protobuf";

/** Every method of the generated contracts, found on disk so that a new one cannot be forgotten. */
export async function readMethods(): Promise<DescMethod[]> {
  const root = fileURLToPath(new URL("../../gen/src/runmesh/", import.meta.url));
  const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith("_pb.js"));
  const modules = await Promise.all(files.map((name) => import(root + name) as Promise<Record<string, unknown>>));
  return modules
    .flatMap((exports) => Object.values(exports) as DescService[])
    .filter((desc) => desc?.kind === "service")
    .flatMap((service) => service.methods);
}

import type { ServerResponse } from "node:http";
import { MeshError } from "@runmesh/domain/errors";
import type { NodeRequest, NodeResponse } from "./one-port-server.ts";

/** What whoever opens the port in a browser reads. It tells nothing of any tenant, so everyone may read it. */
const WELCOME = `RunMesh is up. This port takes calls and has no pages.

From the repository, with the URL of this page:

  npx runmesh --url URL run list
  npx buf curl --http2-prior-knowledge --list-methods URL

docs/api.md tells how to call it: a POST to /<package>.<Service>/<Method> with the request as JSON, or gRPC.
`;

/** Names that differ more than so are not taken for each other. */
const MAX_TYPOS = 3;

/** Answers a look at "/"; false where the request is another. */
export function welcome(request: NodeRequest, response: NodeResponse, path: string): boolean {
  if (path !== "/" || (request.method !== "GET" && request.method !== "HEAD")) return false;
  const out = response as ServerResponse;
  out.writeHead(200, {
    "content-type": "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(WELCOME),
    "x-content-type-options": "nosniff",
  });
  out.end(request.method === "HEAD" ? undefined : WELCOME);
  return true;
}

/** A path that no method has, with the one that was meant where the names are near. `known` are paths of methods. */
export function unknownPath(path: string, known: Iterable<string>): MeshError {
  const [, service = "", method = ""] = /^\/([^/]+)\/([^/]+)$/.exec(path) ?? [];
  const served = [...known].map((other) => other.slice(1).split("/") as [service: string, method: string]);
  const methods = served.filter((other) => other[0] === service).map((other) => other[1]);
  const [wrong, what] =
    methods.length > 0
      ? [`${service} has no method ${method}`, nearest(method, methods)]
      : service !== "" && service.includes(".")
        ? [`there is no service ${service}`, nearest(service, new Set(served.map((other) => other[0])))]
        : ["the path names no method", undefined];
  return new MeshError("NOT_SERVED", what === undefined ? wrong : `${wrong}; did you mean ${what}?`);
}

function nearest(name: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let fewest = Math.min(MAX_TYPOS, Math.ceil(name.length / 3)) + 1;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - name.length) >= fewest) continue;
    const typos = countTypos(name, candidate);
    if (typos < fewest) [best, fewest] = [candidate, typos];
  }
  return best;
}

/** Letters to change, put in or leave out, whatever their case: the distance of Levenshtein, row by row. */
function countTypos(left: string, right: string): number {
  const [from, to] = [left.toLowerCase(), right.toLowerCase()];
  let row = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const changed = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(changed, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[to.length]!;
}

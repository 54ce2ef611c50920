import { isIP } from "node:net";
import { MeshError } from "@runmesh/domain/errors";
import type { NodeRequest, RequestGuard } from "./one-port-server.ts";

const LOCAL_NAMES = ["localhost", "127.0.0.1", "[::1]"] as const;

/**
 * Keeps web pages and other machines away from a server whose callers are all the local admin (DESIGN §11):
 *
 * 1. The Host is localhost, 127.0.0.1 or [::1] with the server's port: a name that was rebound to 127.0.0.1 is not.
 * 2. An Origin, when there is one, is the server's own: a page of another site, or of another local port, is not.
 * 3. Sec-Fetch-Site is neither cross-site nor same-site.
 * 4. Nothing forwarded it: behind a proxy, every caller of the world would look local.
 *
 * No CORS header is ever sent, so a page could not read an answer either.
 */
export function createLoopbackGuard(getPort: () => number): RequestGuard {
  return (request) => {
    const why = findFault(request, getPort());
    if (why === undefined) return undefined;
    return new MeshError("FORBIDDEN", `the local admin is served on this machine only: ${why}`);
  };
}

function findFault(request: NodeRequest, port: number): string | undefined {
  const { headers } = request;
  const authority = headers[":authority"];
  const hosts = LOCAL_NAMES.map((name) => `${name}:${port}`);
  for (const host of [headers.host, authority]) {
    // Clients leave port 80 out.
    const named = port === 80 && host !== undefined && !/:\d+$/.test(String(host)) ? `${host}:80` : host;
    if (named !== undefined && !hosts.includes(String(named).toLowerCase())) return "the Host is another";
  }
  if (headers.host === undefined && authority === undefined) return "there is no Host";

  const origin = headers.origin;
  if (origin !== undefined && !isOwnOrigin(String(origin), hosts)) return "the Origin is another";
  const site = headers["sec-fetch-site"];
  if (site !== undefined && site !== "same-origin" && site !== "none") return "another site asks";
  for (const name of Object.keys(headers)) {
    if (name === "forwarded" || name.startsWith("x-forwarded-") || name === "x-real-ip" || name === "via") {
      return `it came through a proxy (${name})`;
    }
  }
  return undefined;
}

function isOwnOrigin(origin: string, hosts: readonly string[]): boolean {
  return hosts.some((host) => origin.toLowerCase() === `http://${host}`.replace(/:80$/, ""));
}

/** Refuses to begin when callers of other machines would be let in without authentication. */
export function assertSafeListen(host: string, hasAuthentication: boolean): void {
  if (hasAuthentication || isLoopback(host)) return;
  throw new MeshError(
    "FORBIDDEN",
    `without authentication RunMesh listens on loopback only, not on ${host === "" ? "every address" : host}`,
  );
}

/** `localhost` counts: whoever rebinds it owns the machine. Every other name may resolve to any address. */
function isLoopback(host: string): boolean {
  if (host.toLowerCase() === "localhost") return true;
  const bare = host.replace(/^\[(.*)\]$/, "$1");
  return isIP(bare) === 4 ? bare.startsWith("127.") : bare === "::1";
}

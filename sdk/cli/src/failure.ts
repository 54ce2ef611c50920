import { inspect } from "node:util";
import { findCertificateFault } from "./certificate-fault.ts";
import { describeDatabaseRefusal, innermostMessage } from "./database-failure.ts";
import { EXIT, type ExitCode } from "./exit-codes.ts";
import { printable, type Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

/** What went wrong, as `--json` prints it (in an object `error`) and as people read it. */
export interface Failure {
  readonly exitCode: ExitCode;
  readonly reason: string;
  readonly message: string;
  readonly violations: readonly Violation[];
  readonly advice: string;
  readonly requestId: string;
}

interface Violation {
  readonly field: string;
  readonly reason: string;
  readonly description: string;
}

/** The MeshErrors of the client and of the standalone mesh are two classes of one shape. */
interface Refusal extends Error {
  readonly reason: string;
  readonly violations: readonly Violation[];
  readonly advice: string;
  readonly requestId?: string;
}

/** Reasons that say that the mesh, or its database, cannot be reached now. */
const AWAY = new Set(["UNAVAILABLE", "CANCELLED"]);

/** Reasons whose message, in this process, says what to do; the advice is for callers of a mesh. */
const SAYS_ALL = new Set(["FORBIDDEN", "ALREADY_EXISTS", "ILLEGAL_MOVE"]);

/** `name` is how the command is called, for advice that can be copied. */
export function describeFailure(error: unknown, url: string, name = "runmesh"): Failure {
  if (error instanceof UsageError) return fault(EXIT.WRONG_USAGE, "WRONG_USAGE", error.message, error.advice);
  // A call's refusal has a request id, if an empty one; what is left has begun in this process, or in its database.
  if (isRefusal(error) && error.requestId !== undefined) return describeRefusal(error, url, name);
  const refused = describeDatabaseRefusal(error);
  if (refused !== undefined) {
    return fault(refused.exitCode, refused.reason, refused.message, refused.advice.replace("`runmesh ", `\`${name} `));
  }
  if (isRefusal(error)) return describeRefusal(error, url, name);
  const address = findTakenAddress(error);
  if (address !== undefined) {
    return fault(
      EXIT.REFUSED,
      "ALREADY_EXISTS",
      `${address} is taken by another program`,
      "Give another --port, or 0.",
    );
  }
  return fault(EXIT.FAULT, "FAULT", inspect(error));
}

export function printFailure(failure: Failure, terminal: Terminal, json: boolean): void {
  const { exitCode, reason, message, violations, advice, requestId } = failure;
  if (json) {
    terminal.note(JSON.stringify({ error: { exitCode, reason, message, violations, advice, requestId } }));
    return;
  }
  terminal.note(exitCode === EXIT.FAULT ? message : `runmesh: ${reason}: ${printable(message)}`);
  for (const { field, description } of violations) {
    const line = `${field}: ${description}`;
    if (line !== message) terminal.note(`  ${printable(line)}`);
  }
  if (advice !== "") terminal.note(`  ${printable(advice)}`);
  if (requestId !== "") terminal.note(`  request id ${printable(requestId)}`);
}

function describeRefusal(error: Refusal, url: string, name: string): Failure {
  const { reason, violations, requestId } = error;
  const away = AWAY.has(reason);
  const refused = { exitCode: away ? EXIT.NOT_REACHABLE : EXIT.REFUSED, reason, violations };
  if (requestId === undefined) return { ...refused, ...describeLocal(error), requestId: "" };
  if (!away || requestId !== "") {
    const advice = reason === "UNAUTHENTICATED" ? "Give a valid key by --api-key or RUNMESH_API_KEY." : error.advice;
    return { ...refused, message: error.message, advice, requestId };
  }
  if (findCertificateFault(error) !== undefined) {
    const advice =
      "Name the CA of its certificate by NODE_EXTRA_CA_CERTS=ca.pem, and the host as the certificate does.";
    return { ...refused, message: `${url} is not trusted: ${error.message}`, advice, requestId };
  }
  const advice = `Start a mesh with \`${name} dev\`, or name another by --url or RUNMESH_URL.`;
  return { ...refused, message: `${url} does not answer: ${error.message}`, advice, requestId };
}

/** The advice of a reason is for callers of a mesh; who starts one, or looks at its database, needs another. */
function describeLocal(error: Refusal): { readonly message: string; readonly advice: string } {
  const { message, advice, reason } = error;
  const said = AWAY.has(reason) ? innermostMessage(error) : "";
  if (said === "") return { message, advice: SAYS_ALL.has(reason) ? "" : advice };
  return {
    message: `the database cannot be reached: ${said}`,
    advice: "Check that PostgreSQL is up, and the database URL.",
  };
}

/** The address that could not be listened on, where that is what began it. */
function findTakenAddress(error: unknown): string | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { code, address, port } = cause as NodeJS.ErrnoException & { address?: string; port?: number };
    if (code === "EADDRINUSE") return `${address}:${port}`;
  }
  return undefined;
}

function isRefusal(error: unknown): error is Refusal {
  return error instanceof Error && error.name === "MeshError" && "reason" in error;
}

function fault(exitCode: ExitCode, reason: string, message: string, advice = ""): Failure {
  return { exitCode, reason, message, violations: [], advice, requestId: "" };
}

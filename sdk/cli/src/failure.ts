import { inspect } from "node:util";
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

export function describeFailure(error: unknown, url: string): Failure {
  if (error instanceof UsageError) return fault(EXIT.WRONG_USAGE, "WRONG_USAGE", error.message, error.advice);
  if (isRefusal(error)) return describeRefusal(error, url);
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

function describeRefusal(error: Refusal, url: string): Failure {
  const requestId = error.requestId ?? "";
  const away = AWAY.has(error.reason);
  // A call that reached nobody; an error of this process, as of `migrate` on a database, has no request id at all.
  const unheard = away && error.requestId === "";
  return {
    exitCode: away ? EXIT.NOT_REACHABLE : EXIT.REFUSED,
    reason: error.reason,
    message: unheard ? `${url} does not answer: ${error.message}` : error.message,
    violations: error.violations,
    advice: unheard ? "Start a mesh with `runmesh dev`, or name another by --url or RUNMESH_URL." : error.advice,
    requestId,
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

import type { Mesh } from "@runmesh/client";
import type { Run } from "@runmesh/contracts/run/v1/run_pb";
import type { Command } from "commander";
import type { Host } from "./host.ts";
import { createPrinter, type Printer } from "./output.ts";
import { ownName } from "./own-name.ts";
import { createProgress, NO_PROGRESS, type Progress } from "./progress.ts";
import { UsageError } from "./usage-error.ts";

export const DEFAULT_URL = "http://127.0.0.1:7400";

/** One command at work: where it reads from, what it talks to, where it prints. */
export interface Session {
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly signal: AbortSignal;
  readonly printer: Printer;
  readonly progress: Progress;
  /** A command to try next, as in "npx runmesh run watch 7": on the same mesh, for people to copy. */
  next(words: string): string;
  /** What every call gets beside its request. */
  readonly call: { readonly signal: AbortSignal };
  /** Connects at the first call: `--help` and wrong usage do not pay for loading the client. */
  mesh(): Promise<Mesh>;
}

/** A person waits: try again for about a second, not for the client's usual half minute. */
const ATTEMPTS = 4;

export function openSession(command: Command, host: Host): Session {
  const { json = false, url, apiKey } = readGlobals(command, host);
  let mesh: Promise<Mesh> | undefined;
  return {
    url,
    apiKey,
    signal: host.signal,
    printer: createPrinter(host.terminal, json),
    progress: json ? NO_PROGRESS : createProgress(host.terminal),
    next: (words) => `${ownName(host.env)} ${words}${url === urlOfEnvironment(host) ? "" : ` --url ${url}`}`,
    call: { signal: host.signal },
    mesh() {
      mesh ??= import("@runmesh/client").then(({ connect }) =>
        connect({ url, attempts: ATTEMPTS, ...(apiKey !== undefined && { apiKey }) }),
      );
      return mesh;
    },
  };
}

/** Where to look after a run that failed, for people to copy. */
export function noteFailure({ printer, next }: Session, { id, failure }: Run): void {
  if (failure?.taskKey) printer.note(`Its attempts: ${next(`task show ${id} ${failure.taskKey}`)}`);
}

const urlOfEnvironment = ({ env }: Host): string => env.RUNMESH_URL || DEFAULT_URL;

interface Globals {
  readonly json?: boolean;
  readonly url: string;
  readonly apiKey: string | undefined;
}

/** Options win over the environment, the environment over the default. An empty variable counts as absent. */
function readGlobals(command: Command, host: Host): Globals {
  const given = command.optsWithGlobals() as { json?: boolean; url?: string; apiKey?: string };
  const url = given.url ?? urlOfEnvironment(host);
  const protocol = URL.parse(url)?.protocol;
  if (protocol !== "http:" && protocol !== "https:") {
    throw new UsageError(`the URL must be such as ${DEFAULT_URL}, not ${JSON.stringify(url)}`);
  }
  return { json: given.json === true, url, apiKey: given.apiKey ?? (host.env.RUNMESH_API_KEY || undefined) };
}

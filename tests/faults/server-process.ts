import { spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { ROOT } from "../markdown.ts";

export interface ServerProcess extends AsyncDisposable {
  readonly url: string;
  /** Resolves when the process is gone. */
  kill(signal: NodeJS.Signals): Promise<void>;
}

export async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** `runmesh dev` on a folder, in a process of its own; resolves when it is up. */
export async function startServerProcess(dataDir: string, port: number): Promise<ServerProcess> {
  const main = join(ROOT, "sdk/cli/src/main.ts");
  const child = spawn(
    process.execPath,
    ["--conditions=runmesh-source", main, "--json", "dev", "--data", dataDir, "--port", String(port)],
    { stdio: ["ignore", "pipe", "ignore"] },
  );
  const exited = once(child, "exit");
  const first = once(createInterface({ input: child.stdout }), "line").then(([line]) => JSON.parse(line as string));
  const ended = exited.then(([code]) => Promise.reject(new Error(`runmesh dev ended with ${code}`)));
  ended.catch(() => undefined);
  const { url } = (await Promise.race([first, ended])) as { url: string };
  const kill = async (signal: NodeJS.Signals) => {
    child.kill(signal);
    await exited;
  };
  return { url, kill, [Symbol.asyncDispose]: () => kill("SIGTERM") };
}

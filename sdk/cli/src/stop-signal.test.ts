import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";

/** A process that says when it is ready and when it was asked, and then stays. */
const SCRIPT = `
  import { listenForStop } from ${JSON.stringify(new URL("./stop-signal.ts", import.meta.url).href)};
  const signal = listenForStop();
  signal.addEventListener("abort", () => console.log("asked"));
  setInterval(() => {}, 1_000);
  console.log("ready");
`;

test("a signal asks once, also when it comes twice; a second wish, later, is obeyed at once", async () => {
  const child = spawn(process.execPath, ["--input-type=module", "-e", SCRIPT], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exited = once(child, "exit");

  expect((await lines.next()).value).toBe("ready");
  child.kill("SIGINT");
  child.kill("SIGTERM");
  expect((await lines.next()).value).toBe("asked");
  const later = setInterval(() => child.kill("SIGINT"), 300);
  const [code] = await exited;
  clearInterval(later);

  expect(code).toBe(130);
  expect(await lines.next()).toEqual({ done: true, value: undefined });
});

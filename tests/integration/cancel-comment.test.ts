import { Run_State } from "@runmesh/contracts/run/v1/run_pb";
import { Role } from "@runmesh/contracts/tenant/v1/tenant_pb";
import { type KeyedMesh, startKeyedMesh } from "@runmesh/testing/keyed-mesh";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type CliResult, runCli } from "../../sdk/cli/test/run-cli.ts";

let mesh: KeyedMesh;
beforeAll(async () => {
  mesh = await startKeyedMesh();
});
afterAll(() => mesh[Symbol.asyncDispose]());

test("why and by whom a run was cancelled is on the run, in its history and in the audit, and the first word stays", async () => {
  const admin = await mesh.tenant("comments");
  const [first, second] = [await mesh.key(admin, Role.OPERATOR), await mesh.key(admin, Role.OPERATOR)];
  const runId = await first.given.run({ tasks: [{ handler: "nobody" }] });
  const comment = "wrong input: “größer” 🙈";

  const { run: answered } = await first.runs.cancelRun({ runId, comment });
  await second.runs.cancelRun({ runId, comment: "me too" });

  const cancellation = { principal: `key:${first.id}`, comment };
  expect(answered).toMatchObject({ state: Run_State.CANCELLED, cancellation });
  expect((await second.runs.getRun({ runId })).run).toMatchObject({ cancellation });
  expect((await second.runs.listRuns({})).runs[0]).toMatchObject({ id: runId, cancellation });
  const { events } = await first.runs.listEvents({ runId });
  expect(events.map((event) => [event.principal, event.comment])).toEqual([
    [`key:${first.id}`, ""],
    [`key:${first.id}`, comment],
  ]);
  const { entries } = await admin.tenants.listAudit({ filter: { action: "run.cancel" } });
  expect(entries).toMatchObject([{ ...cancellation, target: `run/${runId}`, result: "cancelled" }]);
});

test("a run that is retried is no cancelled run any more, and its history still tells why it was", async () => {
  const admin = await mesh.tenant("retried");
  const [canceller, retrier] = [await mesh.key(admin, Role.OPERATOR), await mesh.key(admin, Role.OPERATOR)];
  const runId = await canceller.given.run({ tasks: [{ handler: "nobody" }] });

  await canceller.runs.cancelRun({ runId, comment: "too early" });
  const { run } = await retrier.runs.retryRun({ runId });
  await retrier.runs.cancelRun({ runId });

  expect(run!.state).toBe(Run_State.RUNNING);
  expect(run!.cancellation).toBeUndefined();
  const { events } = await retrier.runs.listEvents({ runId, afterSequence: 1n });
  expect(events.map((event) => [event.principal, event.comment])).toEqual([
    [`key:${canceller.id}`, "too early"],
    [`key:${retrier.id}`, ""],
    [`key:${retrier.id}`, ""],
  ]);
  expect((await retrier.runs.getRun({ runId })).run).toMatchObject({
    cancellation: { principal: `key:${retrier.id}`, comment: "" },
  });
});

test("a cancel of many runs says its comment of each", async () => {
  const admin = await mesh.tenant("many");
  const operator = await mesh.key(admin, Role.OPERATOR);
  const { name: workflow } = await admin.given.workflow({ tasks: [{ handler: "nobody" }] });
  for (let i = 0; i < 3; i++) await operator.runs.startRun({ workflow });

  await operator.runs.cancelRuns({ filter: { workflow }, comment: "all of them" });

  const cancellation = { principal: `key:${operator.id}`, comment: "all of them" };
  const { runs } = await operator.runs.listRuns({});
  expect(runs.map((run) => run.cancellation)).toMatchObject([cancellation, cancellation, cancellation]);
  const { entries } = await admin.tenants.listAudit({ filter: { action: "run.cancel" } });
  expect(entries.map((entry) => entry.comment)).toEqual(["all of them", "all of them", "all of them"]);
});

test("a comment of 1,024 bytes is kept, a longer one or one with NUL is refused, and then nothing is cancelled", async () => {
  const { runs, given } = await mesh.tenant("limits");
  const longest = "ü".repeat(512);
  const runId = await given.run({ tasks: [{ handler: "nobody" }] });
  const refusal = { reason: "INVALID_FIELD", field: "comment" };

  for (const comment of [`${longest}.`, "x".repeat(2_000), "a\0b"]) {
    await expect(runs.cancelRun({ runId, comment })).rejects.toMatchObject(refusal);
    const all = runs.cancelRuns({ filter: { states: [Run_State.RUNNING] }, comment });
    await expect(all).rejects.toMatchObject(refusal);
  }
  const before = (await runs.getRun({ runId })).run;
  const { run } = await runs.cancelRun({ runId, comment: longest });

  expect(before).toMatchObject({ state: Run_State.RUNNING });
  expect(run!.cancellation!.comment).toBe(longest);
});

test("the command shows the comment with the run, its events and the audit", async () => {
  const admin = await mesh.tenant("shown");
  const operator = await mesh.key(admin, Role.OPERATOR);
  const runId = await operator.given.run({ tasks: [{ handler: "nobody" }] });
  const other = await operator.given.run({ tasks: [{ handler: "nobody" }] });
  const cli = (key: string, ...words: string[]) =>
    runCli(words, { env: { RUNMESH_URL: mesh.url, RUNMESH_API_KEY: key } });
  const who = `key:${operator.id}`;

  await cli(operator.key, "run", "cancel", String(runId), "--comment", "enough");
  await cli(operator.key, "run", "cancel", "--state", "running", "--comment", "the rest", "--yes");
  const shown = await cli(operator.key, "run", "show", String(runId));
  const events = await cli(operator.key, "run", "events", String(other));
  const audit = await cli(admin.key!, "audit", "list", "--action", "run.cancel");
  const json = await cli(admin.key!, "audit", "list", "--target", `run/${runId}`, "--json");

  expect(fieldOf(shown, "cancelled")).toBe(`by ${who}: enough`);
  expect(events.stdout.at(-1)).toMatch(new RegExp(`RUN_CANCELLED +by ${who}: the rest$`));
  expect(audit.stdout[0]).toMatch(/RESULT +WHY$/);
  expect(audit.stdout.slice(1).map((line) => line.replace(/.* cancelled +/, ""))).toEqual(["the rest", "enough"]);
  expect(JSON.parse(json.stdout[0]!)).toMatchObject({ principal: who, comment: "enough" });
});

/** What a record says of one of its fields. */
const fieldOf = ({ stdout }: CliResult, name: string): string | undefined =>
  stdout
    .find((line) => line.startsWith(`${name} `))
    ?.slice(name.length)
    .trim();

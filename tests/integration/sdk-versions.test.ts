/** Workers of SDKs older and newer than the server, by the bytes that they send. */
import { fromBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { RenewLeasesResponseSchema } from "@runmesh/contracts/lease/v1/lease_service_pb";
import { startMesh, type TestMesh } from "@runmesh/testing/mesh";
import type { LeaseKey, MeshWorker } from "@runmesh/testing/mesh-worker";
import { expect, test } from "vitest";
import { tellAttempts } from "../faults/history.ts";

/** A RenewLeasesRequest as it was before it had `leaving`. */
function writeOldRenewal({ session }: MeshWorker, leases: readonly LeaseKey[], acquiring: boolean): BinaryWriter {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.Varint).int64(session.sessionId);
  writer.tag(2, WireType.LengthDelimited).string(session.sessionToken);
  for (const { taskId, fence } of leases) {
    const lease = new BinaryWriter();
    lease.tag(1, WireType.Varint).int64(taskId).tag(2, WireType.Varint).int64(fence);
    lease.tag(3, WireType.Varint).bool(true);
    writer.tag(3, WireType.LengthDelimited).bytes(lease.finish());
  }
  if (acquiring) writer.tag(4, WireType.Varint).bool(true);
  return writer;
}

/** Answers the tasks whose leases were lost, and until when the others hold. */
async function send(mesh: TestMesh, renewal: BinaryWriter) {
  const response = await fetch(`${mesh.url}/runmesh.lease.v1.LeaseService/RenewLeases`, {
    method: "POST",
    headers: { "content-type": "application/proto" },
    body: new Uint8Array(renewal.finish()),
  });
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (response.status !== 200) throw new Error(`the renewal was answered ${response.status}: ${Buffer.from(bytes)}`);
  const { lost, expireTime } = fromBinary(RenewLeasesResponseSchema, bytes);
  return { lost: lost.map(({ taskId }) => taskId), isExtended: expireTime !== undefined };
}

test("a worker older than `leaving` keeps what its renewals name, and stops in order without burning an attempt", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a", retry: { maxAttempts: 1 } }] });
  const old = await mesh.worker();
  const task = await old.acquireOne();

  const held = await send(mesh, writeOldRenewal(old, [task], true));
  expect(await old.release(task)).toBe("accepted");
  const settled = await send(mesh, writeOldRenewal(old, [], false));
  old.close();
  const other = await mesh.worker();
  const again = await other.acquireOne({ waitMs: 0 });

  expect(held).toEqual({ lost: [], isExtended: true });
  expect(settled.lost).toEqual([]);
  expect(await other.complete(again)).toBe("accepted");
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["RELEASED", "SUCCEEDED"]);
});

test("a worker older than `leaving` whose stream ends with leases held is taken for killed", async () => {
  await using mesh = await startMesh();
  const runId = await mesh.given.run({ tasks: [{ key: "a" }] });
  const old = await mesh.worker();
  const task = await old.acquireOne();
  await send(mesh, writeOldRenewal(old, [task], false));
  const other = await mesh.worker();

  old.close();
  const again = await other.acquireOne();

  expect(again).toMatchObject({ key: "a", attempt: 2 });
  expect(await other.complete(again)).toBe("accepted");
  expect(await tellAttempts(mesh, runId, "a")).toEqual(["LOST", "SUCCEEDED"]);
  const renewed = () => send(mesh, writeOldRenewal(old, [], false)).then(() => "renewed", String);
  await expect.poll(renewed).toContain("REASON_SESSION_CLOSED");
});

test("a worker newer than the server is served as if it had not sent the fields that the server does not know", async () => {
  await using mesh = await startMesh();
  await mesh.given.run();
  const newer = await mesh.worker();
  const task = await newer.acquireOne();
  const renewal = writeOldRenewal(newer, [task], false);
  renewal.tag(900, WireType.Varint).bool(true);
  renewal.tag(901, WireType.LengthDelimited).string("a word of tomorrow");

  const held = await send(mesh, renewal);

  expect(held).toEqual({ lost: [], isExtended: true });
  expect(await newer.complete(task)).toBe("accepted");
});

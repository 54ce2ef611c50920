import { Code, ConnectError } from "@connectrpc/connect";
import { Reason as ProtoReason } from "@runmesh/contracts/error/v1/error_pb";
import { MeshError, REASONS, type Reason } from "@runmesh/domain/errors";
import { expect, test } from "vitest";
import { findErrorDetail, fromErrorDetail, getCode, toConnectError, toErrorDetail } from "./rpc-errors.ts";

test("the reasons of the domain and of the contract are the same", () => {
  const inContract = Object.keys(ProtoReason).filter((name) => name !== "UNSPECIFIED");

  expect(inContract.toSorted()).toEqual(Object.keys(REASONS).toSorted());
});

test("every reason travels with the code of the table and with its advice", () => {
  for (const reason of Object.keys(REASONS) as Reason[]) {
    const told = toConnectError(new MeshError(reason, "why"), "r1");

    expect(told.code, reason).toBe(getCode(reason));
    expect(findErrorDetail(told)).toMatchObject({
      reason: ProtoReason[reason],
      requestId: "r1",
      advice: REASONS[reason].advice,
    });
  }
});

test("a detail keeps violations, waits and sequences, at most twenty violations", () => {
  const violations = Array.from({ length: 25 }, (_, i) => ({
    field: `tasks[${i}].key`,
    reason: "DUPLICATE_KEY" as const,
    description: "the key is taken",
  }));
  const error = new MeshError("OVERLOADED", "full", { violations, retryAfterMs: 1_500.2, lastSequence: 9n });

  const read = fromErrorDetail(toErrorDetail(error, "r1"), "full");

  expect(read).toMatchObject({ reason: "OVERLOADED", message: "full", retryAfterMs: 1_501, lastSequence: 9n });
  expect(read.violations).toHaveLength(20);
  expect(read.violations[3]).toMatchObject(violations[3]!);
});

test("a bug reaches the caller as INTERNAL with the request id and without its message", () => {
  const told = toConnectError(new Error("password=hunter2"), "r1");

  expect(told.code).toBe(Code.Internal);
  expect(told.rawMessage).toBe("internal error; the logs have it under request id r1");
  expect(findErrorDetail(told)?.reason).toBe(ProtoReason.INTERNAL);
  expect(told.metadata.get("x-request-id")).toBe("r1");
});

test("an error of the library keeps its code and gets a detail; one with a detail stays as it is", () => {
  const bare = new ConnectError("the deadline has passed", Code.DeadlineExceeded);

  const told = toConnectError(bare, "r1");

  expect(told).toMatchObject({ code: Code.DeadlineExceeded, rawMessage: "the deadline has passed" });
  expect(findErrorDetail(told)?.reason).toBe(ProtoReason.CANCELLED);
  expect(toConnectError(told, "r2")).toBe(told);
});

test("an abort is CANCELLED", () => {
  for (const name of ["AbortError", "TimeoutError"]) {
    const told = toConnectError(new DOMException("gone", name), "r1");

    expect(told.code).toBe(Code.Canceled);
    expect(findErrorDetail(told)?.reason).toBe(ProtoReason.CANCELLED);
  }
});

test("an error about a lone surrogate can be written", () => {
  const told = toConnectError(new MeshError("INVALID_FIELD", "name \ud800"), "r1");

  expect(told.rawMessage).toBe("name \ufffd");
});

import { inspect } from "node:util";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema, Reason } from "@runmesh/contracts/error/v1/error_pb";
import { expect, test } from "vitest";
import { readCallError } from "./errors.ts";

test("a refusal that is printed tells reason, advice and cause, and no bytes of the wire", () => {
  const value = create(ErrorDetailSchema, { reason: Reason.FORBIDDEN, advice: "Ask an admin.", requestId: "r-1" });
  const thrown = new ConnectError("needs developer", Code.PermissionDenied, { "x-request-id": "r-1" }, [
    { desc: ErrorDetailSchema, value },
  ]);

  const error = readCallError(thrown);
  const printed = inspect(error);

  expect(error).toMatchObject({ reason: "FORBIDDEN", advice: "Ask an admin.", requestId: "r-1", cause: thrown });
  expect(thrown.details).toHaveLength(1);
  expect(printed).toContain("[permission_denied] needs developer");
  expect(printed).not.toMatch(/Uint8Array|details|metadata|Headers/);
});

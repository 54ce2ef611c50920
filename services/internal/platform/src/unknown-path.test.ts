import { expect, test } from "vitest";
import { unknownPath } from "./unknown-path.ts";

const known = ["/runmesh.run.v1.RunService/StartRun", "/runmesh.run.v1.RunService/GetRun", "/a.v1.TaskService/GetTask"];

test.each([
  ["/runmesh.run.v1.RunService/StartRunn", "runmesh.run.v1.RunService has no method StartRunn; did you mean StartRun?"],
  ["/runmesh.run.v1.RunService/getrun", "runmesh.run.v1.RunService has no method getrun; did you mean GetRun?"],
  ["/runmesh.run.v1.RunService/Delete", "runmesh.run.v1.RunService has no method Delete"],
  [
    "/runmesh.run.v1.RunServic/StartRun",
    "there is no service runmesh.run.v1.RunServic; did you mean runmesh.run.v1.RunService?",
  ],
  ["/other.v1.Service/Get", "there is no service other.v1.Service"],
  ["/favicon.ico", "the path names no method"],
  ["/", "the path names no method"],
  ["", "the path names no method"],
])("the path %s is told what is wrong with it", (path, message) => {
  const error = unknownPath(path, known);

  expect(error.reason).toBe("NOT_SERVED");
  expect(error.message).toBe(message);
});

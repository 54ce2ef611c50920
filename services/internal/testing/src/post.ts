import { fromBinary } from "@bufbuild/protobuf";
import { ErrorDetailSchema } from "@runmesh/contracts/error/v1/error_pb";
import { reasonName } from "./reason-name.ts";

export interface Posted {
  readonly status: number;
  readonly text: string;
  readonly json: unknown;
  /** Of the error's detail, where the answer has one. */
  readonly reason: string | undefined;
  readonly violations: readonly { readonly field: string; readonly reason: string; readonly description: string }[];
}

/** Posts to a method such as `runmesh.run.v1.RunService/StartRun`: text and bytes as they are, all else as JSON. */
export type Post = (method: string, body: unknown, headers?: Readonly<Record<string, string>>) => Promise<Posted>;

export function createPost(url: string): Post {
  return async (method, body, headers = {}) => {
    const response = await fetch(`${url}/${method}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
    });
    const text = await response.text();
    return { status: response.status, text, ...readAnswer(text) };
  };
}

function readAnswer(text: string): Pick<Posted, "json" | "reason" | "violations"> {
  const json: unknown = text === "" ? undefined : JSON.parse(text);
  const value = (json as { details?: { type: string; value: string }[] } | undefined)?.details?.[0]?.value;
  if (value === undefined) return { json, reason: undefined, violations: [] };
  const detail = fromBinary(ErrorDetailSchema, Buffer.from(value, "base64"));
  return {
    json,
    reason: reasonName(detail.reason),
    violations: detail.violations.map(({ field, reason, description }) => ({
      field,
      reason: reasonName(reason),
      description,
    })),
  };
}

import { invalidField, MeshError } from "@runmesh/domain/errors";
import type { BodyTime } from "./body-time.ts";
import type { NodeRequest } from "./one-port-server.ts";

/** As DESIGN §5 and `TOO_LARGE` say. */
export function tooLarge(limit: number): MeshError {
  return invalidField("body", `the message has more than ${limit} bytes`, "TOO_LARGE");
}

/** The whole body. Over the limit the rest is read and dropped, so that the caller gets to read the answer. */
export function readBody(request: NodeRequest, limit: number, time: BodyTime): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const source = request as NodeJS.ReadableStream & { readonly headers: NodeRequest["headers"] };
    const chunks: Buffer[] = [];
    let size = 0;
    let isWhole = false;
    time.onOver(reject);
    if (Number(source.headers["content-length"] ?? 0) > limit) refuse();

    source.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) refuse();
      else chunks.push(chunk);
    });
    source.once("end", () => {
      isWhole = true;
      time.stop();
      resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    });
    source.once("error", reject);
    // Every request closes; only one that closes before its end was left by its caller.
    source.once("close", () => {
      if (!isWhole) reject(new MeshError("CANCELLED", "the caller went away"));
    });

    function refuse(): void {
      chunks.length = 0;
      reject(tooLarge(limit));
    }
  });
}

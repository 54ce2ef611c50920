import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { MeshError } from "@runmesh/domain/errors";

/** A key's text in its two parts: `rm_<id>_<secret>`. */
export interface ApiKeyText {
  readonly id: string;
  readonly secret: string;
}

const ID_BYTES = 8;
const SECRET_BYTES = 32;
const SHAPE = /^rm_([0-9a-f]{16})_([A-Za-z0-9_-]{43})$/;

export const createKeyId = (): string => randomBytes(ID_BYTES).toString("hex");

export const createKeySecret = (): string => randomBytes(SECRET_BYTES).toString("base64url");

export const writeApiKey = ({ id, secret }: ApiKeyText): string => `rm_${id}_${secret}`;

/** Undefined for what was never a key of ours. */
export function readApiKey(text: string): ApiKeyText | undefined {
  const [, id, secret] = SHAPE.exec(text) ?? [];
  return id === undefined || secret === undefined ? undefined : { id, secret };
}

/** What is stored of a key: without the mesh's secret, a copy of the table cannot be tried against guesses. */
export function hashApiKey({ id, secret }: ApiKeyText, meshSecret: string): Buffer {
  return createHmac("sha256", meshSecret).update(`${id}.${secret}`).digest();
}

/** Whether the hash is one of those, in a time that does not tell how much of one was right. */
export function isOneOf(hash: Buffer, hashes: readonly Buffer[]): boolean {
  let found = false;
  for (const known of hashes) if (known.length === hash.length && timingSafeEqual(known, hash)) found = true;
  return found;
}

const MIN_BYTES = 32;
const MIN_DISTINCT = 10;
const DEVELOPMENT =
  /dev(elop)?|test|example|sample|demo|change.?me|change.?this|replace|password|secret|insecure|default/i;

/** Refuses a secret that is short, monotonous, or that looks as if it came from an example. Never names it. */
export function assertProductionSecret(secret: string, setting: string): void {
  const why =
    Buffer.byteLength(secret) < MIN_BYTES
      ? `has less than ${MIN_BYTES} bytes`
      : new Set(secret).size < MIN_DISTINCT
        ? "repeats itself"
        : DEVELOPMENT.test(secret)
          ? "reads like one of development"
          : undefined;
  if (why === undefined) return;
  throw new MeshError("FORBIDDEN", `${setting} ${why}: make one with \`openssl rand -base64 48\``);
}

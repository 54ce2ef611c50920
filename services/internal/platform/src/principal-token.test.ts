import { createContextValues } from "@connectrpc/connect";
import { expect, test } from "vitest";
import type { Principal } from "./principal.ts";
import { getPrincipal, principalKey } from "./principal.ts";
import { signPrincipal, verifyPrincipalToken } from "./principal-token.ts";

const secret = "a secret of the mesh, 32 bytes long";
const now = 1_800_000_000_000;
const ada: Principal = { tenantId: 7, tenant: "acme", name: "ada@acme.example", roles: ["viewer", "operator"] };
const token = signPrincipal(ada, { secret, audience: "scheduler", now });

test("a token gives back its principal for as long as it lives, and no longer", () => {
  const read = (at: number) => verifyPrincipalToken(token, { secret, audience: "scheduler", now: at });

  expect(read(now)).toEqual(ada);
  expect(read(now + 59_999)).toEqual(ada);
  expect(() => read(now + 60_000)).toThrow(expect.objectContaining({ reason: "UNAUTHENTICATED" }));
  expect(() => read(now - 5_001)).toThrow(expect.objectContaining({ reason: "UNAUTHENTICATED" }));
});

test("a token never lives longer than a minute, whatever is asked for", () => {
  const long = signPrincipal(ada, { secret, audience: "scheduler", now, lifeMs: 3_600_000 });

  expect(() => verifyPrincipalToken(long, { secret, audience: "scheduler", now: now + 60_000 })).toThrow("has expired");
});

test("a token of another secret or audience, or one that was changed, is refused", () => {
  const [body, signature] = token.split(".");
  const claims = JSON.parse(Buffer.from(body!, "base64url").toString());
  const raised = Buffer.from(JSON.stringify({ ...claims, rol: ["admin"] })).toString("base64url");
  const verify = (text: string, options = {}) =>
    verifyPrincipalToken(text, { secret, audience: "scheduler", now, ...options });

  expect(() => verify(token, { secret: "another" })).toThrow("has a wrong signature");
  expect(() => verify(token, { audience: "lease-manager" })).toThrow("is for another service");
  expect(() => verify(`${raised}.${signature}`)).toThrow("has a wrong signature");
  for (const text of ["", ".", "a.b.c", body!, `${body}.`, `${token}x`, "x".repeat(5_000)]) {
    expect(() => verify(text), text).toThrow(expect.objectContaining({ reason: "UNAUTHENTICATED" }));
  }
});

test("a call without a principal is unauthenticated", () => {
  const values = createContextValues();

  expect(() => getPrincipal({ values })).toThrow(expect.objectContaining({ reason: "UNAUTHENTICATED" }));
  values.set(principalKey, ada);
  expect(getPrincipal({ values })).toBe(ada);
});

/** What Node says of a certificate that it does not take; nothing of it passes by itself. */
const CODES: ReadonlySet<unknown> = new Set([
  "CERT_HAS_EXPIRED",
  "CERT_NOT_YET_VALID",
  "CERT_UNTRUSTED",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "ERR_TLS_CERT_ALTNAME_INVALID",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

/** What is wrong with the certificate of whoever was called, where that is what began the error. */
export function findCertificateFault(error: unknown): string | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (CODES.has((cause as Error & { code?: unknown }).code)) return cause.message;
  }
  return undefined;
}

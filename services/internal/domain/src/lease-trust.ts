/**
 * Until when a worker may trust a lease, on its own monotonic clock (G4): counted from when the request was sent, since
 * the answer may have been on its way for any time. Never later than the server's expiry while the clocks run alike.
 */
export function trustedUntil(requestSentAtMonotonicMs: number, ttlMs: number, marginMs: number): number {
  return requestSentAtMonotonicMs + Math.max(0, ttlMs - marginMs);
}

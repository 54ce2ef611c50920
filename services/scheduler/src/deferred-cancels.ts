import { RunMoves } from "./run-moves.ts";

/**
 * Moves for a start within a larger transaction: the runs that it pushes out are cancelled once that has committed. A
 * transaction that holds a limit's key must not wait for the lock of a run, whose holder may wait for the key.
 */
export class DeferredCancels extends RunMoves {
  readonly #cancels: { readonly tenantId: number; readonly runId: bigint; readonly principal: string }[] = [];

  override async cancelFor(tenantId: number, runId: bigint, principal: string): Promise<void> {
    this.#cancels.push({ tenantId, runId, principal });
  }

  /** After the commit. */
  async perform(moves: RunMoves): Promise<void> {
    for (const { tenantId, runId, principal } of this.#cancels) await moves.cancelFor(tenantId, runId, principal);
  }
}

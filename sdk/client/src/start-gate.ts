import type { Client } from "@connectrpc/connect";
import type { RunService, StartRunRequest, StartRunResponse } from "@runmesh/contracts/run/v1/run_service_pb";
import type { MeshError } from "./errors.ts";

interface Waiting {
  readonly request: StartRunRequest;
  readonly resolve: (answer: StartRunResponse) => void;
  readonly reject: (error: unknown) => void;
}

type SendMany = (requests: readonly StartRunRequest[]) => Promise<(StartRunResponse | MeshError)[]>;

/** Calls out at once; starts that come meanwhile gather and go together. */
const MAX_CALLS = 2;
const MAX_BATCH = 500;

/** Sends single starts: one alone goes at once, and what comes while calls are out goes in one call, each on its own. */
export class StartGate {
  readonly #runs: Client<typeof RunService>;
  readonly #sendMany: SendMany;
  readonly #waiting: Waiting[] = [];
  #calls = 0;
  #isScheduled = false;

  constructor(runs: Client<typeof RunService>, sendMany: SendMany) {
    this.#runs = runs;
    this.#sendMany = sendMany;
  }

  start(request: StartRunRequest): Promise<StartRunResponse> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ request, resolve, reject });
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#isScheduled || this.#calls >= MAX_CALLS) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      if (this.#waiting.length > 0) void this.#send(this.#waiting.splice(0, MAX_BATCH));
    });
  }

  async #send(batch: readonly Waiting[]): Promise<void> {
    this.#calls++;
    try {
      const answers = await this.#ask(batch.map((item) => item.request));
      for (const [i, item] of batch.entries()) {
        const answer = answers[i]!;
        if (answer instanceof Error) item.reject(answer);
        else item.resolve(answer);
      }
    } catch (error) {
      for (const item of batch) item.reject(error);
    } finally {
      this.#calls--;
      if (this.#waiting.length > 0) this.#schedule();
    }
  }

  async #ask(requests: readonly StartRunRequest[]): Promise<(StartRunResponse | MeshError)[]> {
    return requests.length === 1 ? [await this.#runs.startRun(requests[0]!)] : this.#sendMany(requests);
  }
}

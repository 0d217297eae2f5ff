/** Loads the weights that the learner has announced: from shared memory, or over HTTP on another machine. */
import type { ModelConfig } from "../../model/policy/model-config.ts";
import { parameterCount } from "../../model/policy/parameters.ts";
import type { ActorContext } from "../actor.ts";
import type { Messages } from "../protocol.ts";
import { downloading } from "./download.ts";
import { WeightsError } from "./error.ts";
import { overHttp } from "./http.ts";
import { loadWeights } from "./load.ts";

interface Reader {
  readonly model: ModelConfig;
  /** null on the learner's machine, where weights are in shared memory. */
  readonly guest: ActorContext["guest"];
  /** Bearer token for weights over HTTP. */
  readonly token: string;
}

/** The announced values, and the digest of the bytes found. `values` is null if these are not the published bytes. */
export async function announcedValues(
  { model, guest, token }: Reader,
  message: Messages["weights"],
): Promise<{ readonly values: Float32Array | null; readonly digest: string }> {
  try {
    const where = guest === null ? message : overHttp(message, guest.weightsFrom);
    return await loadWeights(where, parameterCount(model), token, downloading(guest?.tls ?? {}));
  } catch (error) {
    if (error instanceof WeightsError && error.digest !== null) return { values: null, digest: error.digest };
    throw error;
  }
}

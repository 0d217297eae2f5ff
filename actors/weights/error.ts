/** Weights that cannot be written or fetched. */
export class WeightsError extends Error {
  override readonly name = "WeightsError";
}

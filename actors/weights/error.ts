/** Weights that cannot be written, fetched or trusted. */
export class WeightsError extends Error {
  override readonly name = "WeightsError";
  /** sha256 (hex) of the bytes that were found, if they are not the published ones. */
  readonly digest: string | null;

  constructor(message: string, digest: string | null) {
    super(message);
    this.digest = digest;
  }
}

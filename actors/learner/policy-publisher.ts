/** Publishes the policy's parameters as a new weights version, and announces it to samplers. */
import type { Clock } from "../clock.ts";
import type { Meter } from "../metrics/meter.ts";
import type { Acks } from "../weights/acks.ts";
import type { WeightsPublisher } from "../weights/publisher.ts";
import type { Dispatcher } from "./dispatcher.ts";

export interface PolicyPublisherOptions {
  readonly parameters: Float32Array;
  readonly weights: Pick<WeightsPublisher, "publish">;
  readonly dispatcher: Dispatcher;
  readonly acks: Acks;
  readonly clock: Clock;
  readonly meter: Meter;
}

export class PolicyPublisher {
  readonly #options: PolicyPublisherOptions;

  constructor(options: PolicyPublisherOptions) {
    this.#options = options;
  }

  /**
   * Resolves when samplers can load the version.
   *
   * @returns `acknowledged` resolves to the milliseconds until all samplers had loaded it.
   */
  async publish(version: number): Promise<{ readonly acknowledged: Promise<number> }> {
    const { parameters, weights, dispatcher, acks, clock, meter } = this.#options;
    const began = clock.now();
    dispatcher.announce(await meter.during("time/weights", weights.publish(version, parameters)));
    return { acknowledged: acks.everyone(version).then(() => clock.now() - began) };
  }
}

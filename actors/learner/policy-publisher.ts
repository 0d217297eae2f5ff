/** Publishes the policy as a new weights version, and announces it to samplers. */
import type { Clock } from "../clock.ts";
import type { Meter } from "../metrics/meter.ts";
import type { Acks } from "../weights/acks.ts";
import type { Published } from "../weights/publisher.ts";
import type { Dispatcher } from "./dispatcher.ts";

export interface PolicyPublisherOptions {
  readonly publish: (version: number) => Promise<Published>;
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
    const { publish, dispatcher, acks, clock, meter } = this.#options;
    const began = clock.now();
    dispatcher.announce(await meter.during("time/weights", publish(version)));
    return { acknowledged: acks.everyone(version).then(() => clock.now() - began) };
  }
}

/**
 * Limits on the numbers and texts that an env returns in one episode. The limits are the same for every env.
 *
 * - Every reward, every penalty, the sum of all rewards and penalties of the episode, and every number of `extra` must be finite in float32.
 *   In an update a larger reward would become infinite.
 * - Texts have a maximum length, so that the episode fits into the message to the learner (TRANSPORT_LIMITS.frameBytesMax).
 */
import type { Messages } from "../protocol.ts";

/** Maximum size of one observation, and of one turn's `extra` as JSON. */
const TEXT_BYTES_MAX = 2 ** 20;
/** Maximum size of all observations and all `extra` of an episode together: a quarter of TRANSPORT_LIMITS.frameBytesMax. */
const EPISODE_TEXT_BYTES_MAX = 16 * 2 ** 20;

export class AnswerLimits {
  #textBytes = 0;
  #rewardSum = 0;

  /** @throws {Error} if a text is too long. */
  opened({ observation }: Pick<Messages["env.opened"], "observation">): void {
    this.#takeText("observation", observation);
  }

  /** @throws {Error} if a number is too large, or a text too long. */
  stepped({
    observation,
    reward,
    penalty,
    extra,
  }: Pick<Messages["env.stepped"], "observation" | "reward" | "penalty" | "extra">): void {
    checkNumber("reward", reward);
    checkNumber("penalty", penalty);
    for (const [name, value] of Object.entries(extra)) checkNumber(`extra.${name.slice(0, 100)}`, value);
    this.#rewardSum += reward + penalty;
    checkNumber("sum of rewards in this episode", this.#rewardSum);
    this.#takeText("observation", observation);
    this.#takeText("extra", JSON.stringify(extra));
  }

  #takeText(what: string, text: string): void {
    const bytes = Buffer.byteLength(text);
    if (bytes > TEXT_BYTES_MAX) {
      throw new Error(`the env's ${what} has ${bytes} bytes; at most ${TEXT_BYTES_MAX} are allowed. Shorten it.`);
    }
    this.#textBytes += bytes;
    if (this.#textBytes <= EPISODE_TEXT_BYTES_MAX) return;
    throw new Error(
      `the env's observations and extra of this episode have ${this.#textBytes} bytes; ` +
        `at most ${EPISODE_TEXT_BYTES_MAX} are allowed. Shorten them.`,
    );
  }
}

function checkNumber(what: string, value: number): void {
  if (Number.isFinite(Math.fround(value))) return;
  throw new Error(
    `the env's ${what} is ${value}; float32 holds numbers between -3.4e+38 and 3.4e+38. Return one of these.`,
  );
}

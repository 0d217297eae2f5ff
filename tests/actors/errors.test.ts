import { expect, test } from "bun:test";
import { EpisodeError, within } from "../../actors/errors.ts";

test.each([undefined, null, "words", 5])(
  "an env that throws %p fails its episode, with what it threw",
  async (thrown) => {
    const fault = (error: unknown) => error;
    const thrower = () => {
      throw thrown;
    };
    const errors = [
      await Promise.try(() => within("env", "turn 3", thrower)).catch(fault),
      await within("env", "turn 3", () => Promise.reject(thrown)).catch(fault),
    ];
    for (const error of errors) {
      expect(error).toBeInstanceOf(EpisodeError);
      expect(error).toMatchObject({ message: `turn 3: ${thrown}`, boundary: "env" });
    }
  },
);

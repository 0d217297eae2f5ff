import { expect, test } from "bun:test";
import { trainerInput } from "../../../actors/training/trained-episodes.ts";
import type { Estimator } from "../../../model/learn/advantage/advantage.ts";
import { anOutcome, aTicket } from "../../fixtures.ts";

test("the trainer gets each episode's success where the estimator reads it", () => {
  const played = [true, false].map((success) => ({
    ticket: aTicket(),
    sampler: "s0",
    outcome: anOutcome({ success }),
  }));
  const given = (estimator: Estimator) => trainerInput(played, { estimator }).map(({ success }) => success);
  expect(given({ kind: "max-rl" })).toEqual([true, false]);
  expect(given({ kind: "expert-iteration" })).toEqual([true, false]);
  expect(given({ kind: "grpo" })).toEqual([undefined, undefined]);
});

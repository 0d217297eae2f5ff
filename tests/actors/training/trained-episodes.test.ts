import { expect, test } from "bun:test";
import { trainerInput } from "../../../actors/training/trained-episodes.ts";
import { anOutcome, aTicket, aTurn } from "../../fixtures.ts";

test("the trainer gets each episode's success, and the state that each of its turns began in", () => {
  const played = [true, false].map((success) => ({
    ticket: aTicket(),
    sampler: "s0",
    outcome: anOutcome({ success, turns: [aTurn({ observation: "door" }), aTurn({ observation: "hall" })] }),
  }));
  expect(trainerInput(played).map(({ success, anchors }) => ({ success, anchors }))).toEqual([
    { success: true, anchors: ["door", "hall"] },
    { success: false, anchors: ["door", "hall"] },
  ]);
});

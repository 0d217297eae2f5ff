/** The file of an evaluation's episodes on a disk that is full for a while. tests/scripts/eval/hosted.test.ts continues evaluations. */
import { expect, test } from "bun:test";
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { type HostedEpisode, Results } from "../../../../actors/evaluate/hosted/results.ts";
import { temporaryFolder } from "../../../scripts/temporary.ts";

const turn = { observation: "", reply: "", actions: [], reward: 1, penalty: 0, cut: false, dropped: 0 };
const episode = (index: number): HostedEpisode => ({
  index,
  layoutSeed: index,
  stop: "success",
  success: true,
  turns: [{ ...turn, wellFormed: true, effective: true, valid: true }],
  finalObservation: "",
  extra: {},
  inputTokens: 1,
  outputTokens: 1,
});

test("an episode that a full disk cut off leaves nothing, and those that end after it are kept", () => {
  const file = join(temporaryFolder(), "results.jsonl");
  let room = Number.POSITIVE_INFINITY;
  const results = Results.open(file, {}, (path, text) => {
    appendFileSync(path, text.slice(0, room));
    if (text.length > room) throw new Error("ENOSPC: no space left on device, write");
  });
  results.add(episode(0));
  room = 20;
  expect(() => results.add(episode(1))).toThrow("ENOSPC");
  room = Number.POSITIVE_INFINITY;
  results.add(episode(2));
  for (const { episodes } of [results, Results.open(file, {})]) expect([...episodes.keys()]).toEqual([0, 2]);
});

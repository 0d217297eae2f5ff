/** Whole tiny runs with limited contexts: sampler and learner agree on every token, and an exported chat is what the policy saw. */

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { join } from "node:path";
import type { RunConfig } from "../../../actors/config/config.ts";
import { episodeRules, tagOf } from "../../../actors/play/envs-of-run.ts";
import { type ChatMessage, chatsOf } from "../../../actors/record/chat-lines.ts";
import { RecordedRun } from "../../../actors/record/recorded-run.ts";
import { samplesOf } from "../../../model/learn/sequences.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";
import { aConfig } from "../../fixtures.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playRun, tinySettings } from "../supervisor/tiny-run.ts";

const cases: [string, Record<string, Record<string, unknown>>][] = [
  [
    "the present turn alone, and a critic",
    { prompt: { context: "limited_multi_turn", contextTurnsMax: 1 }, learner: { algorithm: "ppo" } },
  ],
  ["the last two turns", { prompt: { context: "limited_multi_turn", contextTurnsMax: 2 } }],
  ["a summary", { prompt: { context: "single_turn", contextTurnsMax: 2 } }],
  ["contexts too short for the episode", { prompt: { overflow: "drop" }, rollout: { contextTokensMax: 80 } }],
];

test.each(cases)(
  "trains with %s",
  async (_, { prompt = {}, rollout, learner }) => {
    const folder = join(temporaryFolder(), "run");
    const values = {
      env: { tag: "FrozenLake", turnsMax: 4 },
      prompt,
      ...(rollout === undefined ? {} : { rollout }),
      learner: { updates: 2, ...learner },
      validate: { episodes: 8 },
      warmStart: {
        stages: [{ name: "learn", babble: 0.5, noise: 0, steps: 60, batch: 16, learningRate: 1e-2, warmUpSteps: 5 }],
      },
    };
    const config = aConfig(tinySettings(folder), values);
    await playRun(folder, config);
    using db = new Database(join(folder, "run.sqlite"), { readonly: true });
    const value = (name: string) =>
      (db.query("SELECT value FROM metrics WHERE name = ? AND step = 2").get(name) as { value: number } | null)?.value;
    expect(value("train/contexts")).toBeGreaterThan(1);
    expect(value("train/log_prob_gap")).toBeLessThan(1e-4);
    expect(value("train/grad_norm")).toBeGreaterThan(0);
    const dropped = value("train/overflowed_turns")!;
    expect(prompt["overflow"] === "drop" ? dropped > 0 : dropped === 0).toBe(true);
    expectChatsAsSeen(folder, config);
  },
  300_000,
);

/** Of every episode: each exported chat is, letter by letter, what was in the policy's context, and every reply is learnt once. */
function expectChatsAsSeen(folder: string, config: RunConfig): void {
  const tokenizer = new Tokenizer();
  const tag = tagOf(config, "FrozenLake");
  const rules = episodeRules(config, "FrozenLake", tag);
  // A reply that was cut is closed only if something follows it.
  const unclosed = (text: string) => text.replace(/<\|im_end\|>$/, "");
  const inLayout = ({ role, content }: ChatMessage) =>
    `${role === "user" ? `<|im_start|>${content}` : content}<|im_end|>`;
  const run = new RecordedRun(folder);
  let forgetful = 0;
  for (const { row } of run.episodes({})) {
    if (!("trajectory" in row.outcome)) throw new Error(row.outcome.detail);
    const { turns, trajectory } = row.outcome;
    const chats = chatsOf(row.outcome, tag, config, rules);
    const seen = samplesOf(trajectory).map(({ tokens }) => unclosed(tokenizer.decode([...tokens])));
    expect(chats.map((messages) => unclosed(messages.map(inLayout).join("")))).toEqual(seen);
    const learnt = chats.flat().filter(({ role, weight }) => role === "assistant" && weight !== 0);
    expect(learnt.map(({ content }) => content)).toEqual(turns.map(({ reply }) => reply));
    if (chats.length > 1) forgetful++;
  }
  run.store.close();
  expect(forgetful).toBeGreaterThan(0);
}

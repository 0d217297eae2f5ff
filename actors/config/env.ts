/** Sections `env` and `prompt`: the env that the policy plays, and the text that the policy sees. Types and defaults only. */
import { z } from "zod";
import { COMPATS } from "../../envs/tag.ts";
import { CONTEXT_MODES } from "../../envs/text/context.ts";
import { flag, listOf, nonnegativeNumber, oneOf, positiveInt, text } from "./kinds.ts";

export const MixedEnv = z.strictObject({
  tag: z.string().min(1).describe("Tag of the env"),
  name: z
    .string()
    .regex(/^[\w.-]{1,64}$/, "a name has 1 to 64 letters, digits, dots, dashes and underscores")
    .nullable()
    .default(null)
    .describe(
      "Name in metrics and reports; null: the tag. If a tag is in the mix twice, the two items need different names",
    ),
  options: z.record(z.string(), z.unknown()).default({}).describe("The env's own options"),
  groups: positiveInt(null).describe(
    "Groups per update. null: the items with null share the remaining groups evenly. A curriculum replaces these numbers (rollout.curriculum.by)",
  ),
  turnsMax: positiveInt(null).describe(
    "Maximum number of turns of an episode; null: the tag's own limit. If the tag has none, env.turnsMax",
  ),
  actionsMax: positiveInt(null).describe("Maximum number of actions of an episode; null: the tag's own limit"),
  actionsPerTurnMax: positiveInt(null).describe(
    "Maximum number of actions that the env reads from one reply; null: env.actionsPerTurnMax",
  ),
});

export const EnvConfig = z.strictObject({
  tag: text("SimpleSokoban").describe("Env to play; `bun run eval --help` lists the tags"),
  options: z
    .record(z.string(), z.unknown())
    .default({})
    .describe("The env's own options, for example successRate of FrozenLake"),
  mix: listOf(MixedEnv, []).describe(
    "Several envs in every update, in place of env.tag. Items: {tag, name, options, groups, turnsMax, actionsMax, actionsPerTurnMax}",
  ),
  modules: z
    .record(z.string(), z.string().regex(/^[0-9a-f]{64}$/))
    .default({})
    .describe(
      "Modules outside Bunraku that define envs of the run: the path of each module, with the sha256 of its sources. Do not set this key: commands fill it in from bunraku.config.ts",
    ),
  formatPenalty: z
    .number()
    .nonpositive()
    .default(-0.1)
    .describe(
      "Penalty, 0 or negative. The run adds it to the reward of a turn whose reply is malformed, has no action, or has an unknown action",
    ),
  turnsMax: positiveInt(5).describe("Maximum number of turns of an episode"),
  actionsMax: positiveInt(10).describe("Maximum number of actions of an episode, over all turns"),
  actionsPerTurnMax: positiveInt(5).describe(
    "Maximum number of actions that the env reads from one reply; the env ignores further actions",
  ),
  think: flag(true).describe("true: replies are <think>…</think><answer>…</answer>; false: the answer alone"),
  reasoningWeight: nonnegativeNumber(0).describe(
    "Weight of a penalty on false thoughts. A claim is a statement of a thought that the env can check, about the observation or about the turn's actions. A turn's reward decreases by this weight times the share of the claims that are false. 0: the run only measures this share",
  ),
});

export const PromptConfig = z.strictObject({
  layout: oneOf(["compact", "ragen-v1", "ragen-v2"], "compact").describe(
    "compact: short prompts for the built-in policy; ragen-v1, ragen-v2: the text of RAGEN's and RAGEN-2's prompts, for pretrained models",
  ),
  compat: oneOf(COMPATS, "strict").describe(
    "strict: without RAGEN's known defects; ragen-v1, ragen-v2: layout, prompts (byte for byte), env settings and random numbers of that version of RAGEN (docs/algorithms.md)",
  ),
  context: oneOf(CONTEXT_MODES, "full").describe(
    "What a prompt shows of earlier turns. full: all turns; limited_multi_turn: the last turns as a dialogue; single_turn: the last turns as a summary in one message",
  ),
  contextTurnsMax: positiveInt(null).describe(
    "limited_multi_turn, single_turn: maximum number of turns that a prompt shows, the current turn included; null: no maximum",
  ),
  overflow: oneOf(["stop", "drop"], "stop").describe(
    "What happens when a context is full. stop: the episode ends; drop: the context leaves out the oldest turns",
  ),
});

/** What is played, and by how many: env, prompt, rollout, samplers, env servers. Shapes and defaults only. */
import { z } from "zod";
import { CONTEXT_MODES } from "../../envs/text/context.ts";

/** One env of a mix. */
const MixedEnv = z.strictObject({
  tag: z.string().min(1).describe("Which env"),
  name: z
    .string()
    .regex(/^[\w.-]{1,64}$/, "a name has 1 to 64 letters, digits, dots and dashes")
    .nullable()
    .default(null)
    .describe("What metrics and reports call it; null: its tag"),
  options: z.record(z.string(), z.unknown()).default({}).describe("Its own options"),
  groups: z.int().positive().nullable().default(null).describe("Its groups; null: an even share of what is left"),
  turnsMax: z.int().positive().nullable().default(null).describe("Turns of an episode; null: env.turnsMax"),
  actionsMax: z.int().positive().nullable().default(null).describe("Actions of an episode; null: the tag's own"),
  actionsPerTurnMax: z.int().positive().nullable().default(null).describe("null: env.actionsPerTurnMax"),
});

export const EnvConfig = z.strictObject({
  tag: z.string().min(1).default("SimpleSokoban").describe("Which env; `bun run eval --help` names them"),
  options: z
    .record(z.string(), z.unknown())
    .default({})
    .describe("The env's own options, as successRate of FrozenLake"),
  mix: z
    .array(MixedEnv)
    .default([])
    .describe(
      "Several envs in every batch instead of env.tag: {tag, name, options, groups, turnsMax, actionsMax, …} each",
    ),
  formatPenalty: z.number().nonpositive().default(-0.1).describe("Reward once per turn with a dropped or no action"),
  turnsMax: z.int().positive().default(5).describe("Turns of an episode"),
  actionsMax: z.int().positive().default(10).describe("Actions of an episode, over all turns"),
  actionsPerTurnMax: z.int().positive().default(5).describe("Actions read from one reply; further ones are ignored"),
  think: z.boolean().default(true).describe("Replies are <think>…</think><answer>…</answer>, or the answer alone"),
  reasoningWeight: z
    .number()
    .nonnegative()
    .default(0)
    .describe(
      "Taken off a turn's reward if all that its thought claims is untrue, in part if some is; 0: only reported",
    ),
});

export const PromptConfig = z.strictObject({
  layout: z
    .enum(["compact", "ragen-v1", "ragen-v2"])
    .default("compact")
    .describe("compact: only what changes, for the built-in policy; ragen-*: RAGEN's own text, for pretrained models"),
  compat: z
    .enum(["strict", "ragen-v1", "ragen-v2"])
    .default("strict")
    .describe("strict mends RAGEN's known defects; ragen-* reproduces prompts, masks and quirks byte for byte"),
  context: z
    .enum(CONTEXT_MODES)
    .default("full")
    .describe(
      "What a turn sees of those before it: all, a dialogue of the last ones, or one message that sums them up",
    ),
  contextTurnsMax: z
    .int()
    .positive()
    .nullable()
    .default(null)
    .describe("Turns of a limited context, the one asked for included; null: all"),
  overflow: z
    .enum(["stop", "drop"])
    .default("stop")
    .describe(
      "A context too long: stop ends the episode as `context`; drop leaves out its oldest turns, and counts them",
    ),
});

const CurriculumConfig = z.strictObject({
  by: z
    .enum(["none", "success", "reward"])
    .default("none")
    .describe("Move groups to those envs of the mix whose groups differ most within: in success, or in raw reward"),
  smoothing: z.number().min(0).lt(1).default(0.8).describe("Share of the past in the moving mean of what is measured"),
  groupsMin: z.int().positive().default(1).describe("Groups that every env of the mix keeps"),
});

export const RolloutConfig = z.strictObject({
  groups: z.int().positive().default(16).describe("P: boards per optimizer step, and per update unless onlineK is set"),
  groupSize: z.int().positive().default(8).describe("N: episodes per board; they share the layout, not the dynamics"),
  onlineK: z
    .int()
    .positive()
    .default(1)
    .describe("Online-k: k x groups boards are played at once, and learnt from in k optimizer steps before the next"),
  curriculum: CurriculumConfig.prefault({}),
  firstSeed: z.uint32().default(20_000).describe("Layout seed of the first training board; each group takes the next"),
  replyTokensMax: z.int().positive().default(24).describe("Tokens of one reply; a longer one is cut, and counted"),
  contextTokensMax: z
    .int()
    .positive()
    .default(360)
    .describe("Tokens of a context, by default of the whole episode; prompt.overflow says what comes then"),
  temperature: z.number().positive().default(1).describe("Divides the logits of training rollouts"),
  topP: z.number().positive().max(1).default(1).describe("Sample among the likeliest tokens of this total probability"),
  topK: z.int().nonnegative().default(0).describe("Sample among this many likeliest tokens; 0 is no limit"),
  leaseMs: z.int().positive().default(60_000).describe("Time to play a ticket before it is given to another sampler"),
  attemptsMax: z
    .int()
    .positive()
    .default(3)
    .describe("Times an episode is begun at most; if none of them is played to its end, it is left out and counted"),
});

export const SamplerConfig = z.strictObject({
  count: z.int().nonnegative().default(2).describe("Sampler processes on this machine; 0: others lend them"),
  slots: z.int().positive().default(64).describe("Episodes that one sampler decodes in one batch"),
  threads: z.int().positive().default(1).describe("Threads of one sampler's engine"),
  precision: z
    .enum(["full", "half"])
    .default("full")
    .describe("half: samplers play with weights rounded to half precision, sent to other machines in half the bytes"),
});

export const EnvServerConfig = z.strictObject({
  count: z.int().nonnegative().default(1).describe("Env server processes on this machine; 0: others lend them"),
  episodesMax: z.int().positive().default(4096).describe("Open episodes per server; the next open is refused"),
  idleMs: z.int().positive().default(300_000).describe("An episode nobody stepped for so long is forgotten"),
  answerMsMax: z
    .int()
    .positive()
    .default(25_000)
    .describe("Time for an env that lives elsewhere to open or to play a turn; then its episode has failed"),
});

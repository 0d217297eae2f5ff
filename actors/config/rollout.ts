/** Sections `rollout`, `validate`, `sampler` and `envServer`: which episodes are played, and by how many processes. Shapes and defaults. */
import { z } from "zod";

const CurriculumConfig = z.strictObject({
  by: z
    .enum(["none", "success", "reward", "difficulty"])
    .default("none")
    .describe(
      "success, reward: more groups for envs whose episodes differ most within a group; difficulty: env.mix is listed from easy to hard, and the first env below advanceAt gets the groups",
    ),
  advanceAt: z
    .number()
    .gt(0)
    .max(1)
    .default(0.7)
    .describe("difficulty: moving average of success from which an env counts as learned, and the next one begins"),
  smoothing: z
    .number()
    .min(0)
    .lt(1)
    .default(0.8)
    .describe(
      "Weight of the past in the moving average of the spread within groups, or of success; lower reacts faster",
    ),
  groupsMin: z
    .int()
    .positive()
    .default(1)
    .describe("Groups that every env of the mix keeps; with `by` difficulty, that every learned env keeps"),
});

export const RolloutConfig = z.strictObject({
  groups: z.int().positive().default(16).describe("P: boards per update; with onlineK above 1, per optimizer step"),
  groupSize: z.int().positive().default(8).describe("N: episodes per board; they share the layout, not the dynamics"),
  onlineK: z
    .int()
    .positive()
    .default(1)
    .describe("Plays k x groups boards at once and trains on them in k optimizer steps (Online-k)"),
  curriculum: CurriculumConfig.prefault({}),
  firstSeed: z.uint32().default(20_000).describe("Layout seed of the first training board; each group takes the next"),
  replyTokensMax: z.int().positive().default(24).describe("Tokens of one reply; a longer reply is cut"),
  contextTokensMax: z
    .int()
    .positive()
    .default(360)
    .describe("Tokens of a context, which is the whole episode by default; see prompt.overflow"),
  temperature: z.number().positive().default(1).describe("Sampling temperature of training rollouts"),
  topP: z
    .number()
    .positive()
    .max(1)
    .default(1)
    .describe("Samples among the likeliest tokens of this total probability"),
  topK: z.int().nonnegative().default(0).describe("Samples among this many likeliest tokens; 0: no limit"),
  leaseMs: z
    .int()
    .positive()
    .default(60_000)
    .describe("Time to play an episode before another sampler gets it; raise it for slow models"),
  attemptsMax: z
    .int()
    .positive()
    .default(3)
    .describe("Attempts at an episode; after that many failures the episode is left out and counted"),
});

export const ValidateConfig = z.strictObject({
  everyUpdates: z.int().positive().default(10).describe("Updates between validations; also at the start and the end"),
  episodes: z.int().positive().default(256).describe("Fixed boards; with a mix, as many per env"),
  groupSize: z.int().positive().default(1).describe("Episodes per board; from 2 on, pass@k is estimated"),
  firstSeed: z.uint32().default(123).describe("Layout seed of the first validation board"),
  temperature: z.number().nonnegative().default(0.5).describe("Sampling temperature of validation; 0: greedy"),
});

export const SamplerConfig = z.strictObject({
  count: z.int().nonnegative().default(2).describe("Sampler processes on this machine; 0: other machines lend them"),
  slots: z.int().positive().default(64).describe("Episodes that one sampler decodes in one batch"),
  engine: z
    .enum(["own", "vllm", "sglang"])
    .default("own")
    .describe(
      "own: engine.name's; vllm, sglang: an inference server at engine.url on the sampler's machine writes the replies, with the learner's adapters",
    ),
  threads: z.int().positive().default(1).describe("Threads of one sampler's engine"),
  precision: z
    .enum(["full", "half"])
    .default("full")
    .describe("half: samplers use weights in half precision, which other machines download in half the bytes"),
  weightsBetween: z
    .enum(["episodes", "turns"])
    .default("episodes")
    .describe(
      "async: when a sampler takes new weights. episodes: once it plays none; turns: once it writes no reply, so that the turns of an episode may have several policy versions",
    ),
});

export const EnvServerConfig = z.strictObject({
  count: z.int().nonnegative().default(1).describe("Env server processes on this machine; 0: other machines lend them"),
  episodesMax: z.int().positive().default(4096).describe("Open episodes per server; the next one is refused"),
  idleMs: z.int().positive().default(300_000).describe("An episode without a step for this long is closed"),
  answerMsMax: z
    .int()
    .positive()
    .default(25_000)
    .describe("Time for a remote env to open an episode or play a turn; after it, the episode has failed"),
});

/** How long an actor waits for another actor's answer: longer than an env server waits for its env. 30 s by default. */
export const askDeadlineMs = ({ envServer }: { readonly envServer: z.infer<typeof EnvServerConfig> }): number =>
  1.2 * envServer.answerMsMax;

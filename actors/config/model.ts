/** Sections `model`, `warmStart` and `checkpoint`: the policy, what it learns first, and how a run saves it. Types and defaults only. */
import { z } from "zod";
import { LORA_TARGETS } from "../../model/policy/lora.ts";
import {
  flag,
  nonnegativeInt,
  nullableShare,
  oneOf,
  partialShare,
  positiveInt,
  positiveNumber,
  share,
  text,
} from "./kinds.ts";

export const ModelConfig = z.strictObject({
  path: text(null).describe(
    "Folder of a Hugging Face model to train; null: the built-in policy, whose shape the keys model.width to model.hidden set",
  ),
  checkpoint: text(null).describe(
    "Checkpoint of another run; this run starts from the checkpoint's policy, with a fresh optimizer; --from sets this key",
  ),
  pretrainedOnly: flag(false).describe(
    "true: the run starts only if model.path or model.checkpoint is set, because the built-in policy with random weights does not learn with this config",
  ),
  lora: z
    .strictObject({
      rank: nonnegativeInt(0).describe("Rank of the LoRA adapters that the run trains in place of the model; 0: none"),
      alpha: positiveNumber(64).describe("The model scales adapters by alpha / rank"),
      targets: z
        .array(z.enum(LORA_TARGETS))
        .min(1)
        .default([...LORA_TARGETS])
        .describe("Matrices that get an adapter"),
    })
    .prefault({}),
  width: positiveInt(128).describe("Size of the residual stream"),
  layers: positiveInt(3).describe("Transformer blocks"),
  heads: positiveInt(4).describe("Query heads; width / heads must be an even whole number"),
  kvHeads: positiveInt(2).describe("Key and value heads; must divide heads"),
  hidden: positiveInt(256).describe("Inner size of the SwiGLU layer"),
});

const WarmStartStage = z.strictObject({
  name: z.string().min(1).describe("Name in progress and reports"),
  babble: share(0).describe(
    "Share of the demonstrator's turns whose actions are all random; the policy imitates these turns too. random-play does not read it",
  ),
  noise: share(0).describe("Share of random actions in the demonstrator's other turns. random-play does not read it"),
  steps: z.int().positive().describe("Optimizer steps"),
  batch: positiveInt(32).describe("Demonstrations per step"),
  learningRate: z.number().positive().describe("Peak step size of the optimizer"),
  finalFraction: share(0.1).describe(
    "Step size at the last step, as a share of the peak; the step size falls linearly",
  ),
  warmUpSteps: nonnegativeInt(30).describe("Steps in which the step size rises from 0 to the peak"),
});

export const WarmStartConfig = z.strictObject({
  enabled: flag(true).describe("Whether the policy imitates demonstrations before reinforcement"),
  imitate: oneOf(["random-play", "demonstrator"], "random-play").describe(
    "What the policy imitates. random-play: the best plan that random plays of a board find; demonstrator: the env's scripted player",
  ),
  plays: positiveInt(60).describe(
    "Number of random plays of a board. If none of these plays wins (solves the board), more plays follow until one wins, up to playsMax plays in all. If the moves of the env are deterministic, random play stops as soon as it has tried every action in every state that it found",
  ),
  playsMax: positiveInt(600).describe(
    "Maximum number of random plays of a board; the warm start skips a board on which no play wins",
  ),
  playActionsMax: positiveInt(60).describe(
    "Maximum number of actions of a random play; env.actionsMax does not limit random plays",
  ),
  plannedActions: partialShare(0).describe(
    "While random play explores a board, this share of its actions follows the best plan that it found so far on the board; the other actions are random. In the first quarter of a board's plays all actions are random. A share above 0 helps where moves have random outcomes",
  ),
  exploreOnce: flag(false).describe(
    "true: the learner explores a board by random plays only once, and makes all later demonstrations of this board from the same plays. For an env that runs in another process or on a server, the learner always does so. The learner keeps the plays of all boards in up to 256 MiB of memory. If a board's plays do not fit, the learner explores the board again each time",
  ),
  demonstrations: positiveInt(1).describe(
    "Number of demonstrations that the warm start makes from the plays of one board; more than 1 saves time if plays are slow",
  ),
  randomTurns: partialShare(0.15).describe(
    "Share of a demonstration's turns that are random; the policy reads these turns, but does not imitate them",
  ),
  thought: oneOf(["first-action", "next-observation"], "first-action").describe(
    "The thought of a demonstration. first-action: the turn's first action; next-observation: what the env shows after the turn, which needs a larger rollout.replyTokensMax",
  ),
  boards: positiveInt(10_000).describe("Number of boards of the demonstrations"),
  solvedShare: nullableShare(1).describe(
    "Success at which the first stage ends early. Every 200 steps of the stage the policy plays 32 validation episodes. If its success reaches this share, it plays all validation episodes 20 steps later. If its success there reaches this share too, the stage ends. null: the stage never ends early",
  ),
  stages: z
    .array(WarmStartStage)
    .min(1)
    .default([WarmStartStage.parse({ name: "learn", steps: 1200, learningRate: 2e-3 })])
    .describe(
      "Stages of the warm start, in order. Items: {name, babble, noise, steps, batch, learningRate, finalFraction, warmUpSteps}. babble and noise have an effect only if warmStart.imitate is demonstrator. babble: share of turns whose actions are all random; the policy imitates these turns too. noise: share of random actions in the other turns",
    ),
  cacheDir: text("runs/.warm-start").describe(
    "Folder in which the run caches finished warm starts; a file's name is the digest of everything that decides the warm start's result",
  ),
});

/** Layout seed of the first board of the demonstrations. rules.ts refuses a config whose validation uses one of these boards. */
export const WARM_START_FIRST_SEED = 10_000;

export const CheckpointConfig = z.strictObject({
  everyUpdates: positiveInt(10).describe("Updates between checkpoints; the run also saves at its end and on SIGTERM"),
  keep: positiveInt(3).describe(
    "Number of newest checkpoints to keep; the run also keeps the checkpoint with the best validation, and the last healthy checkpoint",
  ),
  durability: oneOf(["normal", "full"], "normal").describe(
    "full: fsync on every commit of run.sqlite, so a power cut loses no stored episode; normal: a power cut may lose the newest stored episodes",
  ),
});

/** The policy and what surrounds its reinforcement: model, warm start, validation, checkpoints. Shapes and defaults. */
import { z } from "zod";
import { LORA_TARGETS } from "../../model/policy/lora.ts";

export const ModelConfig = z.strictObject({
  path: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe("Folder of a Hugging Face model to train; null: the built-in policy, of the shape below"),
  lora: z
    .strictObject({
      rank: z.int().nonnegative().default(0).describe("Of adapters, trained in place of the model; 0: train all of it"),
      alpha: z.number().positive().default(64).describe("Adapters count alpha / rank times"),
      targets: z
        .array(z.enum(LORA_TARGETS))
        .min(1)
        .default([...LORA_TARGETS])
        .describe("Matrices that get an adapter"),
    })
    .prefault({}),
  width: z.int().positive().default(128).describe("Size of the residual stream"),
  layers: z.int().positive().default(3).describe("Transformer blocks"),
  heads: z.int().positive().default(4).describe("Query heads; must divide width"),
  kvHeads: z.int().positive().default(2).describe("Key and value heads; must divide heads"),
  hidden: z.int().positive().default(256).describe("Inner size of SwiGLU"),
  ropeTheta: z.number().positive().default(10_000).describe("Base of the rotary angles"),
  tiedEmbedding: z.boolean().default(true).describe("The output layer is the embedding, transposed"),
  normEpsilon: z.number().positive().default(1e-6).describe("Added to the mean square in RMSNorm"),
});

const WarmStartStage = z.strictObject({
  name: z.string().min(1).describe("Shown in progress and reports"),
  babble: z.number().min(0).max(1).describe("Share of the demonstrator's turns that are random"),
  noise: z.number().min(0).max(1).describe("Share of random actions in the demonstrator's other turns"),
  steps: z.int().positive().describe("Optimizer steps"),
  batch: z.int().positive().default(32).describe("Demonstrations per step"),
  learningRate: z.number().positive().describe("Peak step size of AdamW"),
  finalFraction: z.number().min(0).max(1).default(0.1).describe("Share of the peak reached at the end, linearly"),
  warmUpSteps: z.int().nonnegative().default(30).describe("Steps from 0 to the peak"),
});

export const WarmStartConfig = z.strictObject({
  enabled: z.boolean().default(true).describe("Imitate a noisy scripted player first; else start from random weights"),
  boards: z.int().positive().default(10_000).describe("Boards they are played on"),
  firstSeed: z.uint32().default(10_000).describe("Layout seed of the first of these boards"),
  stages: z
    .array(WarmStartStage)
    .min(1)
    .default([
      {
        name: "learn",
        babble: 0.1,
        noise: 0.1,
        steps: 1400,
        batch: 32,
        learningRate: 2e-3,
        finalFraction: 0.1,
        warmUpSteps: 30,
      },
      {
        name: "blur",
        babble: 0.92,
        noise: 0.2,
        steps: 120,
        batch: 32,
        learningRate: 5e-4,
        finalFraction: 1,
        warmUpSteps: 0,
      },
    ])
    .describe("In order: learn to play, then be blurred to about the random player's success"),
  cacheDir: z.string().min(1).default("runs/.warm-start").describe("Finished warm starts, by digest of their settings"),
});

export const ValidateConfig = z.strictObject({
  everyUpdates: z.int().positive().default(10).describe("Also at the start and at the end"),
  episodes: z.int().positive().default(256).describe("Fixed boards; with a mix, as many of each env"),
  groupSize: z.int().positive().default(1).describe("Episodes per board; from 2 on, pass@k is estimated"),
  firstSeed: z.uint32().default(123).describe("Layout seed of the first of them"),
  temperature: z.number().nonnegative().default(0.5).describe("0 is greedy"),
});

export const CheckpointConfig = z.strictObject({
  everyUpdates: z.int().positive().default(10).describe("Also at the end and on SIGINT or SIGTERM"),
  keep: z.int().positive().default(3).describe("Newest checkpoints kept; the best by validation is kept besides"),
  durability: z
    .enum(["normal", "full"])
    .default("normal")
    .describe("full: fsync on every commit, so that acknowledged data survives a loss of power"),
});

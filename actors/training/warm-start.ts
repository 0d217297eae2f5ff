/**
 * The warm start: a fresh policy imitates demonstrations in stages. Each demonstration follows the best plan that random play
 * of its board finds, or the env's demonstrator plays it. A cache holds each finished warm start under a digest of everything that decides
 * its result.
 *
 * The run's report has success after the first stage ("taught") next to success after reinforcement, because reinforcement of a small policy
 * mostly improves what imitation taught.
 */
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import type { Skill } from "../../envs/tag.ts";
import { huggingFaceViews, readHuggingFace } from "../../model/checkpoint/hugging-face.ts";
import { readSafetensors, writeSafetensors } from "../../model/checkpoint/safetensors.ts";
import { MICRO_TOKENS_MAX, type Sequence } from "../../model/learn/batch.ts";
import type { ModelConfig } from "../../model/policy/model-config.ts";
import { initialize, type Parameters } from "../../model/policy/parameters.ts";
import { sequence } from "../../model/rng.ts";
import { writeWhole } from "../checkpoint/disk.ts";
import type { RunConfig } from "../config/config.ts";
import { WARM_START_FIRST_SEED } from "../config/model.ts";
import { describeError } from "../errors.ts";
import type { TrainerMethods } from "../learner/trainer.ts";
import type { Meter } from "../metrics/meter.ts";
import type { Remote } from "../process/worker-rpc.ts";
import {
  checkReplyLengths,
  type DemonstrationOptions,
  type DemonstrationSource,
  Demonstrations,
  fromDemonstrator,
  fromRandomPlay,
} from "./demonstrations.ts";

/** Part of the digest. Increase this number if a change of the code changes the result of equal settings. */
const CACHE_VERSION = 8;

/** Validation success after the first stage: `cool` at `validate.temperature`, `one` at temperature 1. */
const Taught = z.strictObject({ cool: z.number(), one: z.number() });
export type Taught = Readonly<z.infer<typeof Taught>>;

export interface WarmStartContext extends WarmStartHooks {
  readonly config: RunConfig;
  readonly model: ModelConfig;
  /** null if a server holds the parameters; then no cache holds the warm start. */
  readonly parameters: Parameters | null;
  readonly trainer: Remote<TrainerMethods>;
  /** "compiled, cpu, 2 threads": the engine and its number of threads decide the last digits of a sum. */
  readonly engine: string;
  readonly meter: Meter;
  readonly demonstrations: DemonstrationOptions;
  /** Shows a warning in the log and on the page. */
  readonly notice: (text: string) => void;
}

export interface WarmStartHooks {
  /** Validates the policy. @param name  a name that no other validation of the warm start has */
  readonly measureTaught: (name: string) => Promise<Taught>;
  /**
   * Publishes the policy, and begins to play a few boards with it.
   *
   * @returns the share of episodes that the policy solves, once they have ended; null if no episode could be played
   */
  readonly sample: (stepOverall: number) => Promise<{ readonly success: Promise<number | null> }>;
  readonly progress: (progress: WarmStartProgress) => void;
  /** The warm start calls this after the first step. This step takes longest, because the engine compiles its graphs in this step. */
  readonly begun: () => void;
  /** Throws an error if the run must end. */
  readonly checkStop: () => void;
}

export interface WarmStartResult {
  readonly taught: Taught;
  readonly cached: boolean;
}

export interface WarmStartProgress {
  readonly stage: number;
  readonly stages: number;
  readonly name: string;
  readonly step: number;
  readonly steps: number;
  readonly stepOverall: number;
  /** Cross-entropy per written token in nats: the mean over all steps since the last report of progress. */
  readonly loss: number;
}

/** Number of steps between two reports of progress, and between two samples of play. A sample begins at a report, and may play until the next. */
const REPORT_EVERY = 20;
const SAMPLE_EVERY = 200;

/** The digest includes the demonstrations of this many boards for each stage and env. */
const PREVIEWED = 32;

/** Fills `parameters` from the cache or by training. If `parameters` is null, trains the policy that the server holds. */
export async function warmStart(context: WarmStartContext): Promise<WarmStartResult> {
  const { config, parameters, trainer, meter } = context;
  const digest = digestOf(context, await previews(context));
  const file = join(config.warmStart.cacheDir, `${digest}.safetensors`);
  const known = await readCached(file, context);
  if (known !== null) {
    // This call also copies the cached weights to the trainer's device, which still has older weights.
    await trainer.resetOptimizer();
    return { taught: known, cached: true };
  }
  if (parameters !== null) initialize(parameters, sequence(config.seed, "initial weights"));
  let taught: Taught | null = null;
  let stepOverall = 0;
  const { stages } = config.warmStart;
  for (const [index, stage] of stages.entries()) {
    await trainer.resetOptimizer();
    const boards = boardsOf(config);
    const source = sourceOf(config, stage);
    const stream = new Demonstrations(context.demonstrations, source, boards, stage.batch, config.seed, stage.name);
    let loss = 0;
    let since = 0;
    /** Losses of the steps that the trainer has not finished, the oldest first. */
    const unfinished: Promise<number>[] = [];
    /** The result of a sample that samplers still play. */
    let sampling: Promise<number | null> | null = null;
    let batch = await stream.next();
    for (let step = 0; step < stage.steps; step++) {
      context.checkStop();
      const imitating = trainer.imitate(batch, limitsOf(config.learner), {
        learningRate: learningRate(stage, step),
        beta1: config.learner.betas[0],
        beta2: 0.98,
        epsilon: 1e-8,
        weightDecay: 0,
        clipNorm: 1,
      });
      unfinished.push(meter.during("time/update", imitating));
      // If this loop throws, nothing awaits the later steps. This handler keeps their errors from being unhandled rejections.
      imitating.catch(() => {});
      const isLastStep = step + 1 === stage.steps;
      // This thread plays the next batch while the trainer learns from this one.
      if (!isLastStep) batch = await stream.next();
      since++;
      stepOverall++;
      const isSampled = stepOverall % SAMPLE_EVERY === 0 && !isLastStep;
      // The run also reports step 2, because the run can estimate the remaining time from this step on.
      const isReported = stepOverall % REPORT_EVERY === 0 || stepOverall === 2 || isLastStep;
      // In the other steps the loop gives the trainer the next batch before this step ends, so that the trainer never waits.
      const needsAll = isSampled || isReported || stepOverall === 1;
      while (unfinished.length > (needsAll ? 0 : 1)) loss += await unfinished.shift()!;
      if (stepOverall === 1) context.begun();
      // The samplers play during the next steps. The loop takes the result at the next report, so the result decides at a fixed step.
      const sampled = isReported ? await sampling : null;
      if (isReported) sampling = null;
      if (isSampled) {
        sampling = (await context.sample(stepOverall)).success;
        sampling.catch(() => {});
      }
      // Only the first stage may end early, after a sample with enough success. A later stage may lower success, such as `blur` of
      // configs/solver-taught.yaml.
      if (index === 0 && isEnough(sampled, config)) taught = await solvedAt(stepOverall, context);
      const isDone = index === 0 && taught !== null;
      if (!isReported && !isDone) continue;
      const { name, steps } = stage;
      context.progress({
        stage: index + 1,
        stages: stages.length,
        name,
        step: step + 1,
        steps,
        stepOverall,
        loss: loss / since,
      });
      loss = 0;
      since = 0;
      if (isDone) break;
    }
    taught ??= await context.measureTaught("taught");
  }
  await trainer.resetOptimizer();
  await save(file, context, taught!);
  return { taught: taught!, cached: false };
}

const isEnough = (success: number | null, { warmStart: { solvedShare } }: RunConfig): boolean =>
  success !== null && solvedShare !== null && success >= solvedShare;

/** Validates after a sample with enough success. @returns null if the validation's success is too low; then imitation goes on */
async function solvedAt(stepOverall: number, { config, measureTaught }: WarmStartContext): Promise<Taught | null> {
  const taught = await measureTaught(`taught${stepOverall}`);
  return isEnough(taught.cool, config) ? taught : null;
}

/** Fills the parameters from the file. @returns null if there is no usable file */
async function readCached(file: string, { model, parameters, notice }: WarmStartContext): Promise<Taught | null> {
  if (parameters === null || !(await Bun.file(file).exists())) return null;
  try {
    const cached = readSafetensors(await Bun.file(file).bytes(), file);
    const taught = Taught.parse(JSON.parse(cached.metadata["taught"] ?? "null"));
    readHuggingFace(model, parameters, cached);
    return taught;
  } catch (error) {
    notice(`the cached warm start ${file} cannot be used, so the warm start runs again: ${describeError(error)}`);
    return null;
  }
}

/** Demonstrations of each stage and env, as the present code writes them. @throws {RunError} if their replies are too long */
async function previews({ config, demonstrations }: WarmStartContext): Promise<Sequence[]> {
  const all: Sequence[] = [];
  for (const stage of config.warmStart.stages) {
    for (const env of demonstrations.envs) {
      const options = { ...demonstrations, envs: [env] };
      const stream = new Demonstrations(options, sourceOf(config, stage), boardsOf(config), 1, config.seed, "preview");
      const preview = await stream.take(PREVIEWED);
      checkReplyLengths(env.tag.tag, preview, config.rollout.replyTokensMax);
      all.push(...preview);
    }
  }
  return all;
}

function sourceOf({ warmStart }: RunConfig, skill: Skill): DemonstrationSource {
  return warmStart.imitate === "demonstrator" ? fromDemonstrator(skill) : fromRandomPlay(warmStart);
}

const boardsOf = ({ warmStart }: RunConfig) => ({ first: WARM_START_FIRST_SEED, count: warmStart.boards });

/** The learning rate rises linearly to its peak, then falls linearly to `finalFraction` of the peak. */
function learningRate(stage: RunConfig["warmStart"]["stages"][number], step: number): number {
  const { learningRate: peak, warmUpSteps, finalFraction, steps } = stage;
  if (step < warmUpSteps) return (peak * (step + 1)) / warmUpSteps;
  const done = (step - warmUpSteps) / Math.max(1, steps - warmUpSteps);
  return peak * (1 - (1 - finalFraction) * done);
}

/** The config, with the micro-batch size that is fast on a GPU if the config names no size. */
export const sizedForGpu = (config: RunConfig): RunConfig => ({
  ...config,
  learner: { ...config.learner, microTokensMax: config.learner.microTokensMax ?? MICRO_TOKENS_MAX.gpu },
});

/** Limits of a micro-batch. The two multiples keep the number of different tensor shapes small. */
export const limitsOf = ({ microTokensMax }: RunConfig["learner"]) => ({
  tokensMax: microTokensMax ?? MICRO_TOKENS_MAX.cpu,
  lengthMultiple: 16,
  widthMultiple: 16,
});

/** Digest of everything that decides the result. @param replies  some demonstrations, which change if the code of an env or its players changes */
function digestOf({ config, model, engine, demonstrations }: WarmStartContext, replies: readonly Sequence[]): string {
  const { cacheDir: _, ...chosen } = config.warmStart;
  const settings = { ...chosen, firstSeed: WARM_START_FIRST_SEED, optimizer: config.learner.optimizer };
  const { envs, context, dialogue } = demonstrations;
  const demonstrated = envs.map(({ tag, rules }) => [tag.tag, tag.config, tag.digest, rules]);
  const shown = [context.layout, context.compat, context.context, context.contextTurnsMax, context.overflow];
  const modules = Object.values(config.env.modules);
  const decides = [CACHE_VERSION, config.seed, model, dialogue.digest, demonstrated, shown, settings, ...modules];
  // Samples of play decide when the first stage ends, and the result includes a validation. Both also depend on the samplers' engine.
  const { replyTokensMax, contextTokensMax } = config.rollout;
  const { everyUpdates: __, ...validate } = config.validate;
  const samplers = [config.sampler.precision, config.sampler.threads, config.engine.name, config.engine.device];
  const measured = [validate, replyTokensMax, contextTokensMax, samplers, engine];
  const hash = createHash("sha256");
  hash.update(JSON.stringify([...decides, ...measured, config.learner.betas[0], limitsOf(config.learner)]));
  for (const { tokens, written } of replies) hash.update(JSON.stringify([[...tokens], [...written]]));
  return hash.digest("hex").slice(0, 32);
}

/** Keeps the result for other runs. If the file cannot be written, the run only logs a warning, because this run does not need the file. */
async function save(
  file: string,
  { config, model, parameters, notice }: WarmStartContext,
  taught: Taught,
): Promise<void> {
  if (parameters === null) return;
  const bytes = writeSafetensors(huggingFaceViews(model, parameters), { taught: JSON.stringify(taught) });
  try {
    mkdirSync(config.warmStart.cacheDir, { recursive: true });
    // Write the file whole: another run, even one of this process, may read or write it at any moment.
    await writeWhole(file, (pending) => writeFileSync(pending, bytes, { flush: true }));
  } catch (error) {
    notice(`cannot keep the warm start for other runs in ${file}: ${describeError(error)}`);
  }
}

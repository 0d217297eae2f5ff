/**
 * StarPO-S with Dr. GRPO's advantage on one page and in one process: reinforcement learning of a language-model agent in a multi-turn env.
 * The update equals the update of model/learn/update/update.ts with the aggregation token-mean, bit for bit
 * (tests/examples/starpo.test.ts).
 *
 *   bun examples/starpo.ts                   Bandit, under a minute
 *   bun examples/starpo.ts SimpleSokoban     about two minutes
 *
 *   playGroups()  rollouts: on each of P boards, N episodes of several turns (play)
 *   update()      rewards → filter groups → advantages → loss → gradient → one optimizer step → new weights
 *
 * The policy starts from random weights and first imitates demonstrations. On Sokoban the demonstrations follow plans made from random play;
 * no solver plays. Training and validation do not use the board seeds of the demonstrations.
 *
 * Source: RAGEN, https://arxiv.org/abs/2504.20073 (StarPO, StarPO-S).
 */
import { Transcript } from "../actors/play/transcript.ts";
import { Demonstrations, fromDemonstrator, fromRandomPlay } from "../actors/training/demonstrations.ts";
import { evaluateRandom } from "../envs/analysis/evaluate.ts";
import { openEpisode } from "../envs/episode.ts";
import { envTag } from "../envs/registry.ts";
import { checkSeed } from "../envs/rng/mt19937.ts";
import { openLocal } from "../envs/tag.ts";
import { Decoder } from "../model/decode/decoder.ts";
import { Generator } from "../model/decode/generate.ts";
import { compiledEngine } from "../model/engine/compiled.ts";
import { drGrpo } from "../model/learn/advantage/group.ts";
import { filterGroups } from "../model/learn/filter.ts";
import { Network } from "../model/learn/network.ts";
import { imitation, policyObjective } from "../model/learn/objective.ts";
import { samplesOf } from "../model/learn/sequences.ts";
import { ModelConfig } from "../model/policy/model-config.ts";
import { initialize, layParameters } from "../model/policy/parameters.ts";
import { hash64, sequence } from "../model/rng.ts";
import { builtinDialogue } from "../model/text/chat.ts";
import { Tokenizer } from "../model/text/tokenizer.ts";
import { penalizedReward, rawReward, type Trajectory } from "../model/trajectory.ts";

/** demonstrationSource: what the policy imitates first. keep: share of the groups that the filter keeps. */
const TASKS = {
  Bandit: {
    turnsMax: 1,
    actionsMax: 1,
    // babble 1: each demonstration pulls a random arm, so imitation teaches only the form of a reply.
    demonstrationSource: fromDemonstrator({ babble: 1, noise: 0 }),
    imitationSteps: 100,
    updates: 40,
    learningRate: 1e-3,
    keep: 1,
  },
  SimpleSokoban: {
    turnsMax: 5,
    actionsMax: 10,
    demonstrationSource: fromRandomPlay({
      plays: 60,
      playsMax: 600,
      playActionsMax: 60,
      plannedActions: 0,
      exploreOnce: false,
      demonstrations: 1,
      randomTurns: 0.15,
      thought: "first-action",
    }), // plans from random play
    imitationSteps: 800,
    updates: 100,
    learningRate: 1e-4,
    keep: 0.5,
  },
};
const [GROUPS, GROUP_SIZE] = [16, 8]; // P boards an update, N episodes a board
const SLOTS = GROUPS * GROUP_SIZE; // sequences that are decoded in one batch
const LIMITS = { replyTokensMax: 24, contextTokensMax: 360, contextTurnsMax: null };
const CONTEXT = {
  ...LIMITS,
  layout: "compact",
  compat: false,
  think: true,
  context: "full",
  overflow: "stop",
} as const;
const ENTROPY_COEFFICIENT = 3e-3;
const VALIDATION = { boards: 256, firstSeed: 123, temperature: 0.5 };
const ADAM = { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, clipNorm: 1 };
const MICRO_BATCH = { tokensMax: 512, lengthMultiple: 16, widthMultiple: 16 };

/** A finished episode. The episodes of one board form a group. */
interface Episode {
  readonly group: number;
  readonly success: boolean;
  readonly trajectory: Trajectory;
}

/** A policy with random weights (a Qwen2-style decoder of 0.5 million parameters), and the functions that train it and play with it. */
export async function starpo(task: keyof typeof TASKS, seed: number) {
  const { turnsMax, actionsMax, demonstrationSource, imitationSteps, updates, learningRate, keep } = TASKS[task];
  const tag = envTag(task);
  const actionsPerTurnMax = Math.min(5, actionsMax);
  const rules = { turnsMax, actionsMax, actionsPerTurnMax, formatPenalty: -0.1, think: true };
  const dialogue = builtinDialogue();
  const model = ModelConfig.parse({ vocabulary: new Tokenizer().size });
  const parameters = layParameters(model);
  initialize(parameters, sequence(seed, "initial weights"));
  const engine = compiledEngine({ threads: 2 });
  const network = await Network.create(engine, model, parameters, { optimizer: "muon" });
  const decoder = new Decoder(engine, model, parameters.flat, { slots: SLOTS, capacity: LIMITS.contextTokensMax });
  const generator = new Generator(decoder, model.vocabulary, SLOTS);
  let version = 0;

  /** Plays one episode. In each turn the observation becomes tokens, and the tokens that the policy writes become a reply. */
  async function play(name: string, group: number, boardSeed: number, temperature: number): Promise<Episode> {
    const env = openEpisode(openLocal(tag, { layout: boardSeed, dynamics: hash64(name)[0] }), rules);
    const transcript = new Transcript(tag, dialogue, CONTEXT);
    generator.open(name);
    for (let observation = env.opening; ; ) {
      // Five turns fit into contextTokensMax, so `addPrompt` never returns null.
      const { prompt, tokensMax } = transcript.addPrompt(observation, env.actionsLeft)!;
      const settings = { temperature, topP: 1, topK: 0 };
      // The generator draws a token's random number from `coins`: the run's seed and the episode's name.
      const coins = { seed, episode: hash64(name) };
      const reply = await generator.reply(name, { prompt, tokensMax, settings, coins, stops: dialogue.stops });
      const turn = env.step(transcript.text(reply.tokens));
      transcript.addTurn(reply, turn);
      observation = turn.observation;
      if (turn.ending === null) continue;
      generator.close(name);
      // In a run, the digest says which weights played. This example has one process and needs no digest.
      const trajectory = { ...transcript.trajectory(), version, digest: "" };
      return { group, success: turn.success, trajectory };
    }
  }

  /** The rollouts of one update. The episodes of a group share the board; sampled tokens and Bandit's payouts differ. */
  function playGroups(update: number): Promise<Episode[]> {
    const playMember = (_: unknown, i: number) => {
      const group = Math.floor(i / GROUP_SIZE);
      return play(`u${update}.${i}`, group, 20_000 + update * GROUPS + group, 1);
    };
    return Promise.all(Array.from({ length: SLOTS }, playMember));
  }

  /** One update of StarPO-S. @returns mean entropy of the policy, in nats; null if the filter keeps no group */
  async function update(episodes: readonly Episode[], rate: number): Promise<number | null> {
    // Filter: keep the groups whose raw rewards (without format penalties) vary most. If all rewards of a group are equal, the group teaches little.
    const groups = episodes.map(({ group }) => group);
    const rewards = episodes.map(({ trajectory }) => rawReward(trajectory));
    const filtered = filterGroups({ groups, rewards }, { strategy: "top_ratio", value: keep, order: "largest" });
    const kept = filtered.rows.map((row) => episodes[row]!);
    if (kept.length === 0) return null;

    // Advantage: an episode's reward minus the mean reward of its group. Every written token of the episode gets this advantage.
    const earned = kept.map(({ trajectory }) => penalizedReward(trajectory));
    const groupOf = kept.map(({ group }) => group);
    const advantages = drGrpo(earned, groupOf);

    // Loss: -min(r A, clip(r, .8, 1.28) A), at most 3 |A| where A < 0, minus an entropy bonus; r = exp(logProb - oldLogProb).
    // The loss is a mean over all written tokens.
    // In this example the policy always sees the whole episode, so an episode is one sequence.
    const sequences = kept.map(({ trajectory }) => samplesOf(trajectory)[0]!);
    const tokens = sequences.reduce((sum, { written }) => sum + written.length, 0);
    const perToken = (value: (episode: number, position: number) => number) =>
      sequences.map(({ written }, i) => Float32Array.from(written, (position) => value(i, position)));
    const inputs = {
      oldLogProbs: perToken((i, position) => kept[i]!.trajectory.logProbs[position]!),
      advantages: perToken((i) => advantages[i]!),
      weights: perToken(() => 1 / tokens),
      // `Math.fround`: model/learn/update/prepare.ts rounds the weight to 32 bits before it multiplies.
      entropyWeights: perToken(() => Math.fround(1 / tokens) * ENTROPY_COEFFICIENT),
      // `shares` are the weights of the metrics, which are means over tokens.
      shares: perToken(() => 1 / tokens),
    };
    const rule = { kind: "ppo", clipLow: 0.2, clipHigh: 0.28, dualClip: 3 } as const;
    const objective = policyObjective({ rule, entropyCoefficient: ENTROPY_COEFFICIENT, kl: null });

    // `accumulate` sums the gradient over micro-batches, `step` takes one optimizer step, and `publish` gives the new weights to the decoder.
    const metrics = await network.accumulate(objective, sequences, inputs, MICRO_BATCH);
    await network.step({ ...ADAM, learningRate: rate });
    publish();
    return metrics["entropy"]!;
  }

  /** The warm start: minimizes the cross-entropy of the demonstrated replies. */
  async function imitate(batches: number, say: (line: string) => void): Promise<void> {
    const options = { envs: [{ tag, rules }], context: CONTEXT, dialogue };
    const boards = { first: 1_000_000, count: 1_000_000 };
    const demonstrations = new Demonstrations(options, demonstrationSource, boards, 32, seed, "shown");
    for (let step = 0; step < batches; step++) {
      const batch = await demonstrations.next();
      const tokens = batch.reduce((sum, { written }) => sum + written.length, 0);
      const weights = batch.map(({ written }) => new Float32Array(written.length).fill(1 / tokens));
      const { loss } = await network.accumulate(imitation, batch, { weights }, MICRO_BATCH);
      await network.step({ ...ADAM, learningRate: 2e-3 * (1 - (0.9 * step) / batches) });
      if ((step + 1) % 50 === 0) say(`imitation ${step + 1} of ${batches}: loss ${loss!.toFixed(3)}`);
    }
    publish();
  }

  /** The share of validation boards that the policy solves. Training has other seeds, but some training boards equal a validation board. */
  async function validate(name: string): Promise<number> {
    const { boards, firstSeed, temperature } = VALIDATION;
    let solved = 0;
    for (let from = 0; from < boards; from += SLOTS) {
      const playBoard = (_: unknown, i: number) => play(`${name}.${from + i}`, i, firstSeed + from + i, temperature);
      solved += (await Promise.all(Array.from({ length: SLOTS }, playBoard))).filter(({ success }) => success).length;
    }
    return solved / boards;
  }

  async function train(say: (line: string) => void): Promise<{ random: number; start: number; end: number }> {
    const options = { episodes: VALIDATION.boards, seed: VALIDATION.firstSeed, actionsMax: rules.actionsMax };
    const random = (await evaluateRandom(tag, options))!.success;
    await imitate(imitationSteps, say);
    const start = await validate("start");
    say(`success of random play ${percent(random)}; of the policy after imitation ${percent(start)}`);
    for (let number = 0; number < updates; number++) {
      const episodes = await playGroups(number);
      const entropy = await update(episodes, learningRate * (1 - (0.9 * number) / updates));
      const success = episodes.filter((episode) => episode.success).length / episodes.length;
      say(`update ${number + 1} of ${updates}: success ${percent(success)}, entropy ${entropy?.toFixed(2) ?? "–"}`);
    }
    return { random, start, end: await validate("end") };
  }

  function publish(): void {
    decoder.setParameters(network.parameters.flat);
    version++;
  }

  return { network, playGroups, update, imitate, train };
}

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

if (import.meta.main) {
  const task = (process.argv[2] ?? "Bandit") as keyof typeof TASKS;
  if (!Object.hasOwn(TASKS, task))
    throw new RangeError(`no task ${task}; there are ${Object.keys(TASKS).join(" and ")}`);
  const seed = Number(process.argv[3] ?? 1);
  checkSeed(seed);
  const { train } = await starpo(task, seed);
  const { random, start, end } = await train((line) => console.error(line));
  console.log(`${task}: random ${percent(random)} → imitated ${percent(start)} → reinforced ${percent(end)}`);
}

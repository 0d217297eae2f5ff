/**
 * Demonstrations: episodes as token sequences that the policy imitates in the warm start. The env's demonstrator writes the replies, or the
 * replies follow plans from random play. Prompts and the limits of turns and actions are the same as in a rollout.
 */
import { formatReply } from "../../envs/demonstrator.ts";
import type { DiscreteGame, EpisodeRules, Game, LocalEnv, Seeds } from "../../envs/env.ts";
import { openEpisode } from "../../envs/episode.ts";
import { PythonRandom } from "../../envs/rng/mt19937.ts";
import type { EnvTag, Skill } from "../../envs/tag.ts";
import type { Sequence } from "../../model/learn/batch.ts";
import { samplesOf } from "../../model/learn/sequences.ts";
import { sequence, shuffle, type Uniform } from "../../model/rng.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { nextTurn } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import { type ContextRules, Transcript } from "../play/transcript.ts";
import { type Action, Experience } from "./experience.ts";

/** An env, with the tag and rules with which the policy plays it later. */
export interface DemonstratedEnv {
  readonly tag: EnvTag;
  readonly rules: EpisodeRules;
}

export interface DemonstrationOptions {
  /** The demonstrations' boards alternate between these envs. */
  readonly envs: readonly DemonstratedEnv[];
  readonly context: ContextRules;
  readonly dialogue: Dialogue;
}

export interface DemonstrationSource {
  readonly perBoard: number;
  /** Plays the demonstrations of one board. @param draw  draws the seeds of a board */
  play(
    env: DemonstratedEnv,
    draw: () => Seeds,
    uniform: Uniform,
    options: DemonstrationOptions,
  ): Promise<readonly Sequence[]>;
}

export const fromDemonstrator = (skill: Skill): DemonstrationSource => ({
  perBoard: 1,
  play: (env, draw, uniform, options) => demonstrate(env.tag.open(draw()), env, skill, uniform, options),
});

/** Settings of random play, and of the demonstrations that are planned from it. The env's limits of turns and actions do not apply to random play. */
export type RandomPlay = ExploreSettings &
  Pick<RunConfig["warmStart"], "exploreOnce" | "demonstrations" | "randomTurns" | "thought">;
type ExploreSettings = Pick<RunConfig["warmStart"], "plays" | "playsMax" | "playActionsMax" | "plannedActions">;

/** The warm start fails after this many boards in a row on which no play won, or for which no plan was found. */
const LOST_BOARDS_MAX = 200;

/** Maximum memory of the boards' tables that random play keeps. A board whose table does not fit is explored again for each demonstration. */
const KEPT_BYTES_MAX = 2 ** 28;

/**
 * Demonstrations that follow the best plan from random play of the board. A board on which no play won has no demonstration. If the env is
 * outside this process, plays take time, so random play explores a board only once, even without `exploreOnce`.
 */
export function fromRandomPlay(settings: RandomPlay, keptBytesMax = KEPT_BYTES_MAX): DemonstrationSource {
  const kept = new Map<string, Experience>();
  let keptBytes = 0;
  const experienceOf = async (tag: EnvTag, layout: number, uniform: Uniform): Promise<Experience> => {
    if (!tag.external && !settings.exploreOnce) return explore(tag, layout, settings, uniform);
    const board = JSON.stringify([tag.tag, tag.config, layout]);
    const known = kept.get(board);
    if (known !== undefined) return known;
    const experience = await explore(tag, layout, settings, uniform);
    if (keptBytes + experience.bytes <= keptBytesMax) {
      kept.set(board, experience);
      keptBytes += experience.bytes;
    }
    return experience;
  };
  /** For each env, the number of boards in a row whose demonstrations met no state that random play had met. */
  const unplanned = new Map<DemonstratedEnv, number>();
  const play: DemonstrationSource["play"] = async (env, draw, uniform, options) => {
    for (let lost = 0; lost < LOST_BOARDS_MAX; lost++) {
      const seeds = draw();
      const experience = await experienceOf(env.tag, seeds.layout, uniform);
      if (!experience.won) continue;
      const written: Sequence[] = [];
      const plans: Action[][] = [];
      for (let i = 0; i < settings.demonstrations; i++) {
        const again = { ...seeds, dynamics: drawSeed(uniform) };
        written.push(...(await writePlanned(experience, env, again, settings, uniform, options, plans)));
      }
      // A kept board needs the memory of its values only during its demonstrations.
      experience.learn();
      if (plans.some(({ length }) => length > 0)) unplanned.delete(env);
      else if (plans.length > 0) unplanned.set(env, (unplanned.get(env) ?? 0) + 1);
      if (unplanned.get(env) === LOST_BOARDS_MAX) throw unknownStates(env.tag.tag);
      return written;
    }
    throw new RunError(
      `random play of ${env.tag.tag} cannot be imitated: none of ${Math.max(settings.plays, settings.playsMax)} plays won on any of ` +
        `${LOST_BOARDS_MAX} boards; raise warmStart.playsMax or warmStart.playActionsMax, or set warmStart.enabled to false`,
    );
  };
  return { perBoard: settings.demonstrations, play };
}

const unknownStates = (tag: string) =>
  new RunError(
    `random play of ${tag} cannot be imitated: on ${LOST_BOARDS_MAX} boards in a row its demonstrations met no state that random play had met; ` +
      "let the env show equal states in equal words, give the env a stateOf, or set warmStart.enabled to false",
  );

/** Plays a board at random. @returns what the plays showed; `won` of the result is false if no play won */
export async function explore(
  tag: EnvTag,
  layout: number,
  { plays, playsMax, playActionsMax, plannedActions }: ExploreSettings,
  uniform: Uniform,
): Promise<Experience> {
  const experience = new Experience(tag);
  const quarter = Math.ceil(plays / 4);
  // Exploring a board takes thousands of draws. A stateful generator needs a tenth of the time of `uniform` for a draw.
  const random = new PythonRandom(drawSeed(uniform));
  const draw = () => random.random();
  for (let played = 0; played < plays || (!experience.won && played < playsMax); played++) {
    // The process must send its heartbeats, so this loop pauses before every `plays` plays.
    if (played % plays === 0) await nextTurn();
    const planned = played < quarter ? 0 : plannedActions;
    if (planned > 0 && played % quarter === 0) experience.learn();
    const game = tag.open({ layout, dynamics: drawSeed(draw) });
    if (experience.isComplete(game, playActionsMax)) break;
    const playing = experience.play(game, playActionsMax, draw, planned);
    if (playing !== undefined) await playing;
  }
  experience.learn();
  return experience;
}

/** Writes one episode with planned and random turns. Each turn gets an equal share of the actions left. @param plans  collects each plan */
function writePlanned(
  experience: Experience,
  env: DemonstratedEnv,
  seeds: Seeds,
  { randomTurns, thought }: RandomPlay,
  uniform: Uniform,
  options: Pick<DemonstrationOptions, "context" | "dialogue">,
  plans: Action[][],
): Promise<readonly Sequence[]> {
  const { tag, rules } = env;
  const game = tag.open(seeds);
  const plan = (actionsLeft: number, count: number) => {
    const made = experience.plan(game, actionsLeft, count);
    plans.push(made);
    return made;
  };
  const nameOf = (action: Action) => (typeof action === "string" ? action : (game as DiscreteGame).actions[action]!);
  const foreseen = thought === "next-observation" ? openForeseen(env, seeds) : null;
  const shown = (observation: string) => (options.context.layout === "compact" ? tag.brief(observation) : observation);
  // Source of the thoughts that foresee the next observation: SPA, arXiv 2510.15047.
  const thoughtOf = (actions: readonly string[]) =>
    foreseen === null ? `try ${actions[0]}` : shown(foreseen.step(formatReply("next", actions)).observation);
  let turnsLeft = rules.turnsMax;
  const replyTo = (actionsLeft: number) => {
    const count = Math.min(rules.actionsPerTurnMax, Math.ceil(actionsLeft / turnsLeft--));
    const planned = uniform() < randomTurns ? [] : plan(actionsLeft, count);
    const random = () => Array.from({ length: count }, (_, i) => tag.random(game, actionsLeft - i, uniform));
    const actions = (planned.length > 0 ? planned : random()).map(nameOf);
    return { reply: formatReply(thoughtOf(actions), actions), imitated: planned.length > 0 };
  };
  return writeEpisode(game, env, replyTo, options);
}

/**
 * A second copy of the episode, one turn ahead, so that a thought can state the next observation.
 *
 * @throws {RunError} if the env is outside this process
 */
function openForeseen({ tag, rules }: DemonstratedEnv, seeds: Seeds): LocalEnv {
  const game = tag.open(seeds);
  if (game.kind !== "outside") return openEpisode(game, rules);
  throw new RunError(
    `warmStart.thought is next-observation, which needs an env inside this process; ${tag.tag} is outside; set warmStart.thought to first-action`,
  );
}

const drawSeed = (uniform: Uniform) => Math.floor(uniform() * 2 ** 32);

/** `Demonstrations` sorts this many batches together by length, so that the sequences of a batch need little padding. */
const BATCHES_SORTED = 8;

export class Demonstrations {
  readonly #options: DemonstrationOptions;
  readonly #source: DemonstrationSource;
  readonly #boards: { readonly first: number; readonly count: number };
  readonly #uniform: Uniform;
  readonly #batch: number;
  #played = 0;
  #drawn: Sequence[] = [];
  #ready: Sequence[][] = [];

  /** @param name  names this stream of demonstrations; `seed` and `name` determine every random draw */
  constructor(
    options: DemonstrationOptions,
    source: DemonstrationSource,
    boards: { readonly first: number; readonly count: number },
    batch: number,
    seed: number,
    name: string,
  ) {
    this.#options = options;
    this.#source = source;
    this.#boards = boards;
    this.#batch = batch;
    this.#uniform = sequence(seed, `demonstrations ${name}`);
  }

  /** The next batch of demonstrations, of similar lengths. The first call plays several batches; each later call plays about one batch. */
  async next(): Promise<Sequence[]> {
    const { perBoard } = this.#source;
    const count = this.#batch * BATCHES_SORTED;
    const isEmpty = this.#ready.length === 0;
    const wanted = isEmpty ? count * perBoard : Math.min(count * perBoard, this.#drawn.length + this.#batch);
    while (this.#drawn.length < wanted) this.#drawn.push(...(await this.#play()));
    if (isEmpty) {
      // Demonstrations of one board are very similar, so the shuffle spreads them over several batches.
      if (perBoard > 1) shuffle(this.#drawn, this.#uniform);
      const drawn = this.#drawn.splice(0, count);
      drawn.sort((a, b) => a.tokens.length - b.tokens.length);
      const batches = Array.from({ length: BATCHES_SORTED }, (_, i) =>
        drawn.slice(i * this.#batch, (i + 1) * this.#batch),
      );
      this.#ready = shuffle(batches, this.#uniform);
    }
    return this.#ready.pop()!;
  }

  /** The demonstrations of the next `count` boards, in the order of play. */
  async take(count: number): Promise<Sequence[]> {
    const taken: Sequence[] = [];
    for (let i = 0; i < count; i++) taken.push(...(await this.#play()));
    return taken;
  }

  async #play(): Promise<readonly Sequence[]> {
    const { envs } = this.#options;
    const env = envs[this.#played++ % envs.length]!;
    const uniform = this.#uniform;
    const draw = () => ({
      layout: this.#boards.first + Math.floor(uniform() * this.#boards.count),
      dynamics: drawSeed(uniform),
    });
    return this.#source.play(env, draw, uniform, this.#options);
  }
}

/** @throws {RunError} if a reply has more than `replyTokensMax` tokens: a policy that imitates this reply would never finish an answer */
export function checkReplyLengths(name: string, demonstrations: readonly Sequence[], replyTokensMax: number): void {
  const longest = Math.max(0, ...demonstrations.map(longestReply));
  if (longest <= replyTokensMax) return;
  throw new RunError(
    `a policy cannot imitate the demonstrations of ${name}: their longest reply has ${longest} tokens, and ` +
      `rollout.replyTokensMax is ${replyTokensMax}; set this key to ${longest} or more`,
  );
}

/** Number of tokens of the longest reply. The positions of a reply's tokens follow each other without a gap. */
function longestReply({ written }: Sequence): number {
  let longest = 0;
  let length = 0;
  for (const [i, position] of written.entries()) {
    length = i > 0 && position === written[i - 1]! + 1 ? length + 1 : 1;
    longest = Math.max(longest, length);
  }
  return longest;
}

/** Writes one episode with the demonstrator's replies. @throws {Error} if the env has no demonstrator */
export async function demonstrate(
  game: Game,
  env: DemonstratedEnv,
  skill: Skill,
  uniform: Uniform,
  options: Pick<DemonstrationOptions, "context" | "dialogue">,
): Promise<readonly Sequence[]> {
  const { demonstrator, tag } = env.tag;
  if (demonstrator === null) {
    throw new Error(`${tag} has no demonstrator to imitate; set warmStart.imitate to random-play`);
  }
  const replyTo = (actionsLeft: number) => ({
    reply: demonstrator.reply(game, actionsLeft, skill, uniform),
    imitated: true,
  });
  return writeEpisode(game, env, replyTo, options);
}

/**
 * Plays one episode with the replies of `replyTo`. Each context with a reply to imitate gives one sequence, and the policy imitates only these
 * replies. With overflow "stop" a rollout ends at the context's limit, but a demonstration does not: the policy imitates the whole demonstration.
 *
 * @param replyTo  writes the next reply with its thought
 * @throws {RunError} if a single prompt does not fit into the context
 */
async function writeEpisode(
  game: Game,
  { tag, rules }: DemonstratedEnv,
  replyTo: (actionsLeft: number) => { readonly reply: string; readonly imitated: boolean },
  { context, dialogue }: Pick<DemonstrationOptions, "context" | "dialogue">,
): Promise<readonly Sequence[]> {
  const prefix = rules.think ? "<think>" : "<answer>";
  const contextTokensMax = context.overflow === "stop" ? Number.POSITIVE_INFINITY : context.contextTokensMax;
  const transcript = new Transcript(tag, dialogue, { ...context, contextTokensMax }, rules.actionsPerTurnMax);
  const env = await openEpisode(game, rules);
  /** 1 for each written token that the policy imitates, 0 for the others. */
  const imitated: number[] = [];
  try {
    let observation = env.opening;
    for (;;) {
      if (transcript.addPrompt(observation, env.actionsLeft) === null) {
        throw new RunError(
          `a prompt of ${tag.tag} leaves no room for a reply in rollout.contextTokensMax, ${contextTokensMax}; raise it`,
        );
      }
      const next = replyTo(env.actionsLeft);
      const text = rules.think ? next.reply : next.reply.slice(next.reply.indexOf("<answer>"));
      const stepped = await env.step(text);
      const tokens = dialogue.replyTokens(text, prefix);
      transcript.addTurn({ tokens, logProbs: [], cut: false }, stepped);
      for (const _ of tokens) imitated.push(next.imitated ? 1 : 0);
      if (stepped.ending !== null) break;
      observation = stepped.observation;
    }
  } finally {
    await env.close();
  }
  const trajectory = transcript.trajectory();
  let at = 0;
  const written = trajectory.written.map((flag) => (flag === 1 ? imitated[at++]! : 0));
  return samplesOf({ ...trajectory, written }).filter(({ written: { length } }) => length > 0);
}

/**
 * Episodes played by a scripted demonstrator, as token sequences for the warm start to imitate. Prompts and limits are those of a
 * rollout; only the replies come from the demonstrator.
 */
import type { EpisodeRules, LocalGame } from "../../envs/env.ts";
import { openEpisode } from "../../envs/episode.ts";
import { type EnvTag, openLocal, type Skill } from "../../envs/tag.ts";
import type { Sequence } from "../../model/learn/batch.ts";
import { samplesOf } from "../../model/learn/sequences.ts";
import { sequence, shuffle, type Uniform } from "../../model/rng.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { RunError } from "../errors.ts";
import { type ContextRules, Transcript } from "../play/transcript.ts";

/** An env, as the policy plays it later. */
export interface Lesson {
  readonly tag: EnvTag;
  readonly rules: EpisodeRules;
}

export interface DemonstrationOptions {
  /** Played in turn. */
  readonly lessons: readonly Lesson[];
  readonly context: ContextRules;
  readonly dialogue: Dialogue;
}

/** This many batches are drawn together and sorted by length, so that one batch needs little padding. */
const BATCHES_SORTED = 8;

export class Demonstrations {
  readonly #options: DemonstrationOptions;
  readonly #skill: Skill;
  readonly #boards: { readonly first: number; readonly count: number };
  readonly #uniform: Uniform;
  readonly #batch: number;
  #played = 0;
  #drawn: Sequence[] = [];
  #ready: Sequence[][] = [];

  /** @param name  of this stream; seed and name determine every draw */
  constructor(
    options: DemonstrationOptions,
    skill: Skill,
    boards: { readonly first: number; readonly count: number },
    batch: number,
    seed: number,
    name: string,
  ) {
    this.#options = options;
    this.#skill = skill;
    this.#boards = boards;
    this.#batch = batch;
    this.#uniform = sequence(seed, `demonstrations ${name}`);
  }

  /** The next batch of demonstrations, of similar lengths. */
  next(): Sequence[] {
    if (this.#ready.length === 0) {
      while (this.#drawn.length < this.#batch * BATCHES_SORTED) this.#drawn.push(...this.#play());
      const drawn = this.#drawn.splice(0, this.#batch * BATCHES_SORTED);
      drawn.sort((a, b) => a.tokens.length - b.tokens.length);
      const batches = Array.from({ length: BATCHES_SORTED }, (_, i) =>
        drawn.slice(i * this.#batch, (i + 1) * this.#batch),
      );
      this.#ready = shuffle(batches, this.#uniform);
    }
    return this.#ready.pop()!;
  }

  /** The next demonstrations, in the order in which they are played. */
  take(count: number): Sequence[] {
    return Array.from({ length: count }, () => this.#play()).flat();
  }

  #play(): readonly Sequence[] {
    const { lessons } = this.#options;
    const lesson = lessons[this.#played++ % lessons.length]!;
    const uniform = this.#uniform;
    const layout = this.#boards.first + Math.floor(uniform() * this.#boards.count);
    const dynamics = Math.floor(uniform() * 2 ** 32);
    const game = openLocal(lesson.tag, { layout, dynamics });
    return demonstrate(game, lesson, this.#skill, uniform, this.#options);
  }
}

/** @throws {RunError} if a reply is longer than a policy's may be: its imitator would never finish an answer */
export function checkReplyLengths(name: string, demonstrations: readonly Sequence[], replyTokensMax: number): void {
  const longest = Math.max(0, ...demonstrations.map(longestReply));
  if (longest <= replyTokensMax) return;
  throw new RunError(
    `a policy cannot imitate the demonstrations of ${name}: they have replies of ${longest} tokens, and ` +
      `rollout.replyTokensMax is ${replyTokensMax}; set it to ${longest} or more`,
  );
}

/** Tokens of the longest reply, a run of written positions. */
function longestReply({ written }: Sequence): number {
  let longest = 0;
  let length = 0;
  for (const [i, position] of written.entries()) {
    length = i > 0 && position === written[i - 1]! + 1 ? length + 1 : 1;
    longest = Math.max(longest, length);
  }
  return longest;
}

/**
 * One episode by the demonstrator: one sequence per context. The demonstrator ignores the context limit; the demonstration stays
 * valid.
 *
 * @throws {Error} if the env has no demonstrator
 * @throws {RangeError} if a single prompt does not fit into the context
 */
export function demonstrate(
  game: LocalGame,
  { tag, rules }: Lesson,
  skill: Skill,
  uniform: Uniform,
  { context, dialogue }: Pick<DemonstrationOptions, "context" | "dialogue">,
): readonly Sequence[] {
  const { demonstrator } = tag;
  if (demonstrator === null)
    throw new Error(`${tag.tag} has no scripted demonstrator to imitate; set warmStart.enabled to false`);
  const prefix = rules.think ? "<think>" : "<answer>";
  const contextTokensMax = context.overflow === "stop" ? Number.POSITIVE_INFINITY : context.contextTokensMax;
  const transcript = new Transcript(tag, dialogue, { ...context, contextTokensMax });
  const env = openEpisode(game, rules);
  let observation = env.opening;
  for (;;) {
    if (transcript.ask(observation, env.actionsLeft) === null) {
      throw new RangeError(
        `a prompt of ${tag.tag} leaves no room for a reply in rollout.contextTokensMax, ${contextTokensMax}; raise it`,
      );
    }
    const reply = demonstrator.reply(game, env.actionsLeft, skill, uniform);
    const text = rules.think ? reply : reply.slice(reply.indexOf("<answer>"));
    const stepped = env.step(text);
    transcript.played({ tokens: dialogue.replyTokens(text, prefix), logProbs: [], cut: false }, stepped);
    if (stepped.ending !== null) return samplesOf(transcript.trajectory());
    observation = stepped.observation;
  }
}

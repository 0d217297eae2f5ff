/**
 * Golden case H8: the loss masks of `learner.lossOn`, and reward positions as RAGEN derives them, by counting turn-start tokens.
 * Only this check computes those positions: our trajectories record where turns end.
 *
 * The case has no inputs of its own. Its inputs are H6's update messages in ChatML, through a toy tokenizer.
 */

import type { EnvTag } from "../../../envs/tag.ts";
import type { Message } from "../../../envs/text/prompt.ts";
import { lossMask } from "../../../model/learn/loss-mask.ts";
import { normalizeRewards } from "../../../model/learn/reward.ts";
import { type Check, perKey, vectorChecks } from "./check.ts";
import { actionsIn, chatml, tagOf } from "./envs/prompts.ts";

interface Placed {
  loss_mask_ones: number[];
  score_positions: [number, string, number][][];
  first_trained: string[];
}
interface H8 {
  v1: Record<string, unknown> & {
    trained_tokens: string[][];
    mask_ones: number[];
    seq_len: number;
    rm_scores_last: number[];
    original_rm_scores_last: number[];
    metrics: Record<string, number>;
  };
}
interface GoldenFile {
  cases: { id: string; v1?: { name: string; messages: Message[][] }[] }[];
}

const PAD = "<|pad|>";
const FORMAT_PENALTY = -0.1;
/** Least reward of a solved last turn: Sokoban's is a bonus of 10 less the cost of its actions, elsewhere it is 1. */
const solvedReward = ({ type }: EnvTag) => (type === "sokoban" ? 5 : 1);

export function maskChecks(body: unknown, file: unknown): Check[] {
  const { v1 } = body as H8;
  const generation = (file as GoldenFile).cases
    .find(({ id }) => id === "H6")
    ?.v1?.find(({ name }) => name === "generation");
  if (generation === undefined) {
    throw new Error("H8 needs the messages of H6 v1 generation, which this file lacks");
  }
  const chats = generation.messages.map(updateMessages);
  const rewards = generation.messages.map(turnRewards);
  const { rows, chat, words } = tokenize(chats.map((chat) => chatml(chat, null)));
  const tag = tagOf(generation.messages[0]!, "ragen-v1");
  const penalties = chats.map((messages) => FORMAT_PENALTY * messages.filter((one) => isPunished(one, tag)).length);
  const masks = rows.map((tokens) => predictionMask(tokens, chat, "assistant"));
  const trained = (mask: Uint8Array, row: number) =>
    [...mask.keys()].filter((t) => mask[t]).map((t) => words[rows[row]![t + 1]!]);
  const ones = masks.map((mask) => mask.reduce((sum, one) => sum + one, 0));
  const sums = rewards.map((turns) => turns.reduce((sum, reward) => sum + reward, 0));
  const { scores } = normalizeRewards(
    { rewards: sums, penalties, groups: sums.map(() => 0), tags: sums.map(() => "") },
    { grouping: "state", method: "identity" },
  );
  const solved = rewards.map((turns) => (turns.some((reward) => reward >= solvedReward(tag)) ? 1 : 0));
  const successes = solved.filter((success) => success !== 0);
  const metrics: Record<string, number> = {
    [`${tag.tag}/success`]: average(solved),
    [`${tag.tag}/non-zero/success`]: average(successes),
    response_length: average(ones),
  };
  return [
    { name: "trained_tokens", expected: v1.trained_tokens, got: masks.map(trained) },
    { name: "mask_ones", expected: v1.mask_ones, got: ones },
    { name: "seq_len", expected: v1.seq_len, got: rows[0]!.length },
    { name: "rm_scores_last", expected: v1.rm_scores_last, got: Array.from(scores) },
    { name: "original_rm_scores_last", expected: v1.original_rm_scores_last, got: Array.from(scores) },
    ...perKey("", v1.metrics, metrics),
    ...Object.entries(v1)
      .filter(([name]) => name.startsWith("use_turn_scores="))
      .flatMap(([name, expected]) => vectorChecks(name, () => placedChecks(name, expected as Placed))),
  ];

  function placedChecks(name: string, expected: Placed): Check[] {
    const learned = name.includes("enable_response_mask=True") ? "assistant" : "all";
    const placement = name.includes("use_turn_scores=True") ? "turns" : "end";
    const used = rows.map((tokens) => predictionMask(tokens, chat, learned));
    const got: Placed = {
      loss_mask_ones: used.map((mask) => mask.reduce((sum, one) => sum + one, 0)),
      score_positions: rows.map((tokens, row) => {
        const placed = ragenScores(tokens, chat, rewards[row]!, placement);
        // Positions count from the end: -1 is the last column.
        const at = [...placed.keys()].filter((t) => placed[t] !== 0);
        return at.map((t): [number, string, number] => [t - placed.length, words[tokens[t + 1]!]!, placed[t]!]);
      }),
      first_trained: used.map((mask, row) => trained(mask, row)[0]!),
    };
    return perKey(`${name}: `, { ...expected }, { ...got });
  }
}

const average = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** For training, RAGEN drops the messages after the last reply. */
function updateMessages(messages: Message[]): Message[] {
  return messages.slice(0, 1 + messages.findLastIndex(({ role }) => role === "assistant"));
}

/** Each turn's reward, from the first line of the user message after its reply. */
function turnRewards(messages: Message[]): number[] {
  return messages.flatMap(({ role, content }) => {
    const reward = role === "user" ? /^Reward:\n(\S+)\n/.exec(content)?.[1] : undefined;
    return reward === undefined ? [] : [Number(reward)];
  });
}

/** A reply without an action, or with an unknown one, costs the format penalty. */
function isPunished({ role, content }: Message, tag: EnvTag): boolean {
  if (role !== "assistant") return false;
  const { named, known } = actionsIn(tag, content, true);
  return known.length === 0 || known.length < named.length;
}

/** The case's toy tokenizer, with left padding. */
function tokenize(texts: string[]): { rows: Int32Array[]; chat: ChatTokens; words: string[] } {
  const ids = new Map([[PAD, 0]]);
  const split = texts.map(
    (text) => text.match(/<\|im_start\|>|<\|im_end\|>|\n|[\p{L}\p{N}_]+|[^\p{L}\p{N}_\n]/gu) ?? [],
  );
  for (const word of split.flat()) if (!ids.has(word)) ids.set(word, ids.size);
  const width = Math.max(...split.map((words) => words.length));
  const rows = split.map((words) => {
    const tokens = new Int32Array(width);
    tokens.set(
      words.map((word) => ids.get(word)!),
      width - words.length,
    );
    return tokens;
  });
  return {
    rows,
    chat: {
      turnStart: ids.get("<|im_start|>")!,
      turnEnd: ids.get("<|im_end|>")!,
      system: ids.get("system")!,
      assistant: ids.get("assistant")!,
    },
    words: [...ids.keys()],
  };
}

// Token sequences start with a system turn, then users and assistants alternate; left padding counts as turn 0. Results have
// one column less than the tokens: column t belongs to the target tokens[t + 1].

interface ChatTokens {
  /** Ids that open and close a turn: "<|im_start|>" and "<|im_end|>" for Qwen. */
  readonly turnStart: number;
  readonly turnEnd: number;
  readonly system: number;
  readonly assistant: number;
}

/** Turn of each of the L tokens: 0 in padding, 1 in the system turn, even in user turns, odd from 3 on in assistant turns. */
function turnIndices(tokens: Int32Array, turnStart: number): Int32Array {
  let turn = 0;
  return tokens.map((token) => {
    if (token === turnStart) turn++;
    return turn;
  });
}

/** For each of the L - 1 predictions, 1 where RAGEN trains. A prediction is one place before its token. */
function predictionMask(tokens: Int32Array, chat: ChatTokens, turns: "assistant" | "all"): Uint8Array {
  const written = new Uint8Array(tokens.length);
  for (const [at, token] of tokens.entries()) {
    if (token !== chat.turnStart || tokens[at + 1] !== chat.assistant) continue;
    written.fill(1, at + 3, tokens.indexOf(chat.turnEnd, at) + 1);
  }
  const marks = { messageStart: chat.turnStart, system: [chat.system], beforeReplies: true };
  return lossMask({ tokens, written, contexts: [0] }, { turns, marks }).subarray(1);
}

/**
 * Rewards on the L - 1 target tokens: the sum on the last column, or each turn's reward on the token after its turn-end token
 * (Qwen's newline). The reward of a turn that is not in the tokens is lost.
 *
 * Source: RAGEN ctx_manager get_masks_and_scores, use_turn_scores False and True, for Qwen.
 *
 * @param turnRewards reward of each assistant turn, in order.
 */
function ragenScores(
  tokens: Int32Array,
  { turnStart, turnEnd }: ChatTokens,
  turnRewards: readonly number[],
  placement: "turns" | "end",
): Float32Array {
  const scores = new Float32Array(tokens.length - 1);
  if (placement === "end") {
    scores[scores.length - 1] = turnRewards.reduce((sum, reward) => sum + reward, 0);
    return scores;
  }
  const turns = turnIndices(tokens, turnStart);
  for (let i = 0; i < scores.length; i++) {
    const turn = (turns[i]! - 3) / 2;
    if (tokens[i] === turnEnd && Number.isInteger(turn) && turn >= 0) scores[i] = turnRewards[turn] ?? 0;
  }
  return scores;
}

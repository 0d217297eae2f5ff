/** H4, H5, X6: rewards of answers, and parsing of replies. */
import { z } from "zod";
import { BanditConfig, BanditGame } from "../../../envs/bandit/game.ts";
import { CountdownConfig, CountdownGame, signedSolution } from "../../../envs/countdown/game.ts";
import { metaMathLabel, QuestionGame } from "../../../envs/questions/game.ts";
import { answerScore } from "../../../envs/search/answer.ts";
import { parseReply } from "../../../envs/text/answer.ts";
import type { Check } from "../check.ts";

const Pull = z.object({ observation: z.string(), reward: z.number(), done: z.boolean(), success: z.boolean() });
const Instance = z.object({ nums: z.array(z.number()), target: z.number() });
const H4 = z.object({
  bandit_v1: z.array(
    z.object({
      seed: z.uint32(),
      arms: z.array(z.string()),
      pull_1: Pull,
      pull_2: Pull,
      prompt: z.string().optional(),
    }),
  ),
  bandit_v2: z.object({
    split: z.enum(["train", "test"]),
    reset_seed: z.uint32(),
    rows: z.array(
      z.object({
        internal_seed: z.number(),
        effective_seed: z.uint32(),
        lo: z.string(),
        hi: z.string(),
        arms: z.array(z.string()),
        hi_pull_reward: z.number(),
      }),
    ),
  }),
  countdown: z.object({
    has_solution: z.array(Instance.extend({ result: z.boolean() })),
    cases: z.array(
      Instance.extend({
        action: z.string(),
        reward: z.number(),
        observation: z.string(),
        done: z.boolean(),
        action_is_effective: z.boolean(),
        success: z.boolean(),
      }),
    ),
  }),
  metamathqa: z.array(
    z.object({
      response: z.string(),
      label: z.string().nullable(),
      trace: z.array(
        z.object({
          answer: z.string(),
          observation: z.string(),
          reward: z.number(),
          done: z.boolean(),
          action_is_valid: z.boolean(),
          success: z.boolean(),
        }),
      ),
    }),
  ),
});

export function scoring(body: unknown): Check[] {
  const { bandit_v1, bandit_v2, countdown, metamathqa } = H4.parse(body);
  return [
    ...bandit_v1.flatMap(banditV1),
    ...bandit_v2.rows.map((row) => banditV2(row, bandit_v2.split, bandit_v2.reset_seed)),
    ...countdown.has_solution.map(({ result, ...instance }) => ({
      name: `countdown ${instance.target} from ${instance.nums}: has_solution`,
      expected: result,
      got: signedSolution(instance) !== null,
    })),
    ...countdown.cases.map(({ nums, target, action, ...expected }) => {
      const game = new CountdownGame({ nums, target }, CountdownConfig.parse({}));
      const { reward, done, effective, success } = game.act(action);
      const got = { reward, done, success, action_is_effective: effective, observation: game.render() };
      return { name: `countdown ${target} from ${nums}: ${action}`, expected, got };
    }),
    ...metamathqa.flatMap(metaMath),
  ];
}

const shared = { sharedStream: true };

function banditV1(vector: z.infer<typeof H4>["bandit_v1"][number]): Check[] {
  // The file has the arms in the order of the board; a successful pull marks the high one.
  const [high, low] = vector.pull_1.success ? [0, 1] : [1, 0];
  const config = BanditConfig.parse({ ...shared, loArmName: vector.arms[low], hiArmName: vector.arms[high] });
  const open = () => new BanditGame(config, { layout: vector.seed, dynamics: vector.seed });
  const name = `bandit_v1 seed ${vector.seed}`;
  const pulls = [vector.pull_1, vector.pull_2].map((expected, arm) => {
    const game = open();
    const { reward, done, success } = game.act(arm);
    return { name: `${name}: arm ${arm + 1}`, expected, got: { reward, done, success, observation: game.render() } };
  });
  const arms = { name: `${name}: arms`, expected: vector.arms, got: [...open().actions] };
  const prompt = { name: `${name}: prompt`, expected: vector.prompt, got: open().render() };
  return vector.prompt === undefined ? [arms, ...pulls] : [arms, prompt, ...pulls];
}

type BanditRow = z.infer<typeof H4>["bandit_v2"]["rows"][number];

function banditV2(row: BanditRow, split: "train" | "test", resetSeed: number): Check {
  const { internal_seed, ...expected } = row;
  const seed = resetSeed + internal_seed;
  const game = new BanditGame(BanditConfig.parse({ ...shared, split }), { layout: seed, dynamics: seed });
  const [arms, lo, hi] = [[...game.actions], game.low, game.actions[game.high]];
  const got = { effective_seed: seed, lo, hi, arms, hi_pull_reward: game.act(game.high).reward };
  return { name: `bandit_v2 seed ${seed}`, expected, got };
}

function metaMath(vector: z.infer<typeof H4>["metamathqa"][number], index: number): Check[] {
  const label = metaMathLabel(vector.response);
  const game = new QuestionGame({ text: "", answer: label });
  return [
    { name: `metamathqa[${index}]: label`, expected: vector.label, got: label },
    ...vector.trace.map(({ answer, ...expected }) => {
      const { reward, done, valid, success } = game.act(answer);
      const got = { reward, done, success, action_is_valid: valid, observation: game.render() };
      return { name: `metamathqa[${index}]: ${JSON.stringify(answer)}`, expected, got };
    }),
  ];
}

const H5 = z.object({
  vectors: z.array(
    z.object({
      enable_think: z.boolean(),
      max_actions_per_turn: z.number(),
      raw: z.string(),
      llm_response: z.string(),
      actions: z.array(z.string()),
    }),
  ),
});

export function parsing(body: unknown): Check[] {
  return H5.parse(body).vectors.map(({ enable_think, max_actions_per_turn, raw, ...expected }) => {
    const { actions, cleaned } = parseReply(raw, { think: enable_think, actionsPerTurnMax: max_actions_per_turn });
    const name = `${enable_think ? "think" : "no think"} ${JSON.stringify(raw)}`;
    return { name, expected, got: { actions, llm_response: cleaned } };
  });
}

const X6 = z.array(z.object({ pred: z.string(), gt: z.string(), reward: z.number() }));

export function searchRewards(body: unknown): Check[] {
  return X6.parse(body).map(({ pred, gt, reward }) => ({
    name: `${JSON.stringify(pred)} for ${JSON.stringify(gt)}`,
    expected: reward,
    got: answerScore(pred, gt),
  }));
}

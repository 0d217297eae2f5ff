/** Golden cases H4, H5 and X6: rewards of answers, and parsing of replies. */
import { z } from "zod";
import { BanditConfig, BanditGame } from "../../../../envs/bandit/game.ts";
import { CountdownConfig, CountdownGame, signedSolution } from "../../../../envs/countdown/game.ts";
import { metaMathLabel, QuestionGame } from "../../../../envs/questions/game.ts";
import { answerScore } from "../../../../envs/search/answer.ts";
import { parseReply } from "../../../../envs/text/answer.ts";
import { type Check, eachVector, Outcome, Vectors } from "../check.ts";

const Instance = z.object({ nums: z.array(z.number()), target: z.number() });
const BanditVector = z.object({
  seed: z.uint32(),
  arms: z.array(z.string()),
  pull_1: Outcome,
  pull_2: Outcome,
  prompt: z.string().optional(),
});
const BanditRow = z.object({
  internal_seed: z.number(),
  effective_seed: z.uint32(),
  lo: z.string(),
  hi: z.string(),
  arms: z.array(z.string()),
  hi_pull_reward: z.number(),
});
const Solvable = Instance.extend({ result: z.boolean() });
const Counted = Outcome.extend({ ...Instance.shape, action: z.string(), action_is_effective: z.boolean() });
const MathVector = z.object({
  response: z.string(),
  label: z.string().nullable(),
  trace: z.array(Outcome.extend({ answer: z.string(), action_is_valid: z.boolean() })),
});
const H4 = z.object({
  bandit_v1: Vectors,
  bandit_v2: z.object({ split: z.enum(["train", "test"]), reset_seed: z.uint32(), rows: Vectors }),
  countdown: z.object({ has_solution: Vectors, cases: Vectors }),
  metamathqa: Vectors,
});

export function scoring(body: unknown): Check[] {
  const { bandit_v1, bandit_v2, countdown, metamathqa } = H4.parse(body);
  const { split, reset_seed } = bandit_v2;
  return [
    ...eachVector("bandit_v1", bandit_v1, BanditVector, banditV1),
    ...eachVector("bandit_v2", bandit_v2.rows, BanditRow, (row) => [banditV2(row, split, reset_seed)]),
    ...eachVector("countdown has_solution", countdown.has_solution, Solvable, ({ result, ...instance }) => [
      {
        name: `countdown ${instance.target} from ${instance.nums}: has_solution`,
        expected: result,
        got: signedSolution(instance) !== null,
      },
    ]),
    ...eachVector("countdown cases", countdown.cases, Counted, ({ nums, target, action, ...expected }) => {
      const game = new CountdownGame({ nums, target }, CountdownConfig.parse({}));
      const { reward, done, effective, success } = game.act(action);
      const got = { reward, done, success, action_is_effective: effective, observation: game.render() };
      return [{ name: `countdown ${target} from ${nums}: ${action}`, expected, got }];
    }),
    ...eachVector("metamathqa", metamathqa, MathVector, metaMath),
  ];
}

const shared = { sharedStream: true };

function banditV1(vector: z.infer<typeof BanditVector>): Check[] {
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

function banditV2(row: z.infer<typeof BanditRow>, split: "train" | "test", resetSeed: number): Check {
  const { internal_seed, ...expected } = row;
  const seed = resetSeed + internal_seed;
  const game = new BanditGame(BanditConfig.parse({ ...shared, split }), { layout: seed, dynamics: seed });
  const [arms, lo, hi] = [[...game.actions], game.low, game.actions[game.high]];
  const got = { effective_seed: seed, lo, hi, arms, hi_pull_reward: game.act(game.high).reward };
  return { name: `bandit_v2 seed ${seed}`, expected, got };
}

function metaMath(vector: z.infer<typeof MathVector>, index: number): Check[] {
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

const Reply = z.object({
  enable_think: z.boolean(),
  max_actions_per_turn: z.number(),
  raw: z.string(),
  llm_response: z.string(),
  actions: z.array(z.string()),
});
const H5 = z.object({ vectors: Vectors });

export function parsing(body: unknown): Check[] {
  const { vectors } = H5.parse(body);
  return eachVector("vectors", vectors, Reply, ({ enable_think, max_actions_per_turn, raw, ...expected }) => {
    const { actions, cleaned } = parseReply(raw, { think: enable_think, actionsPerTurnMax: max_actions_per_turn });
    const name = `${enable_think ? "think" : "no think"} ${JSON.stringify(raw)}`;
    return [{ name, expected, got: { actions, llm_response: cleaned } }];
  });
}

/** `gt` may list several right answers; the best of their scores counts. */
const Scored = z.object({
  pred: z.string(),
  gt: z.union([z.string(), z.array(z.string()).min(1)]),
  reward: z.number(),
});

export function searchRewards(body: unknown): Check[] {
  return eachVector("answers", Vectors.parse(body), Scored, ({ pred, gt, reward }) => [
    {
      name: `${JSON.stringify(pred)} for ${JSON.stringify(gt)}`,
      expected: reward,
      got: Math.max(...[gt].flat().map((answer) => answerScore(pred, answer))),
    },
  ]);
}

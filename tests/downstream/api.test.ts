/**
 * The public API, pinned: names and the types that a user's code relies on. A change here is a line in CHANGELOG.md. `.ci/package` runs
 * this file again against the installed package.
 */
import { expect, test } from "bun:test";
import * as ai from "../../library/ai.ts";
import * as config from "../../library/config.ts";
import * as env from "../../library/env.ts";
import * as bunraku from "../../library/index.ts";
import * as testing from "../../library/testing.ts";

const namesOf = (module: object): string[] => Object.keys(module).sort();

test("modules export these names", () => {
  expect(namesOf(bunraku)).toEqual(["defineConfig", "evaluate", "loadPolicy", "train"]);
  expect(namesOf(ai)).toEqual(["agentEnv", "bunraku"]);
  expect(namesOf(config)).toEqual(["defineConfig"]);
  expect(namesOf(env)).toEqual(["Pcg64", "defineEnv", "formatReply", "noisyReply", "withReward", "z"]);
  expect(namesOf(testing)).toEqual(["checkEnv", "checkTag"]);
});

class Coin implements env.DiscreteGame {
  readonly kind = "discrete";
  readonly actions = ["Heads", "Tails"];
  readonly side: number;

  constructor(sides: number, seeds: env.Seeds) {
    this.side = new env.Pcg64(seeds.layout).integers(sides);
  }

  render(): string {
    return `call it: ${this.side}`;
  }

  act(action: number): env.Effect {
    const success = action === this.side;
    return { reward: Number(success), done: true, effective: true, valid: true, success };
  }
}

test("an env's players get its own game, and open gets its options", () => {
  const source: env.TagSource = env.defineEnv({
    tag: "Coin",
    options: env.z.strictObject({ sides: env.z.int().min(1).max(2).default(2) }),
    instruction: "Call the coin.",
    actionsMax: 1,
    open: ({ sides }, seeds) => new Coin(sides, seeds),
    optimal: (game) => game.side,
    best: (game, actionsMax) => (game.side >= 0 && actionsMax > 0 ? 1 : null),
  });
  const tag = source.make({ sides: 1 }, "strict");
  expect([tag.tag, tag.type, tag.config, tag.actionsMax]).toEqual(["Coin", "coin", { sides: 1 }, 1]);
  const game = tag.open({ layout: 1, dynamics: 0 });
  expect(tag.optimal!(game, 1, () => 0)).toBe(0);
  expect(() => source.make({ side: 3 }, "strict")).toThrow('options of Coin: Unrecognized key: "side"');
});

test("an env without options takes none, and a tag is a name", () => {
  const source = env.defineEnv({
    tag: "Plain",
    instruction: "",
    actionsMax: 1,
    open: (_, seeds) => new Coin(2, seeds),
  });
  expect(source.make({}, "strict").demonstrator).toBeNull();
  expect(() => env.defineEnv({ tag: "no", instruction: "", actionsMax: 1, open: () => new Coin(2, seeds) })).toThrow(
    'the tag of an env has 2 to 41 letters and digits and starts with a capital, such as LightsOut; got "no"',
  );
});

const seeds: env.Seeds = { layout: 1, dynamics: 0 };

test("a project's config is typed, and returned as it is", () => {
  const project: config.BunrakuConfig = {
    envs: ["./envs/coin.ts", "bunraku-env-coin"],
    preset: "quickstart",
    run: { env: { tag: "Coin" }, learner: { updates: 2 } },
    presets: { long: { learner: { updates: 200 } } },
    runsFolder: "runs",
  };
  expect(config.defineConfig(project)).toBe(project);
});

test("a program's options and results are typed", () => {
  const started: bunraku.TrainOptions = { resume: "runs/one", envs: ["./envs/coin.ts"], notice: () => {} };
  const loaded: bunraku.PolicyOptions = { envs: ["./envs/coin.ts"], checkpoint: "u000002", temperature: 0 };
  const success = (update: bunraku.Update): number | null => update.metrics["train/success"] ?? update.success;
  const stop = (run: bunraku.Run): Promise<bunraku.RunResult> => run.stop("enough");
  const reply = (policy: bunraku.Policy): Promise<string> =>
    policy.reply([{ role: "user", content: "?" }], { seed: 1 });
  expect([started, loaded, success, stop, reply]).toHaveLength(5);
  const coin = ai.agentEnv({
    tag: "Agent",
    instruction: "",
    actionsMax: 1,
    task: (_, { layout }) => layout,
    agent: async (_, task, signal) => ({ reward: task, success: !signal.aborted }),
    random: ({ task }) => String(task),
  });
  expect(coin.make({}, "strict").turnsMax).toBe(1);
});

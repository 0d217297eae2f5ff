/** Alfworld and AlfworldOOD, through examples/remote-envs/alfworld_env.py. Source: RAGEN-2 config/envs.yaml. */
import { z } from "zod";
import { splitOfSeed } from "../data/split.ts";
import type { Effect, OutsideGame } from "../env.ts";
import { serverUrl } from "../outside/json-server.ts";
import { RemoteClient } from "../remote/client.ts";
import { RemoteGame } from "../remote/game.ts";
import { remoteExpert, remoteOptions, remoteRandom } from "../remote/tags.ts";
import { defineTag, expectGame, type Parts, type Player, plainWording, type TagSource } from "../tag.ts";

const AlfworldConfig = z.strictObject({
  ...remoteOptions,
  url: serverUrl("http://127.0.0.1:7110"),
  /** The server opens one game of TextWorld at a time, in about 0.2 s each. So an opening may wait for many other openings. */
  timeoutMs: z.int().positive().default(60_000),
  /** `seed`: layout seeds below 10,000 play games of `validationGames`, and other seeds play training games. */
  split: z.enum(["seed", "train", "validation"]).default("seed"),
  validationGames: z.enum(["eval_in_distribution", "eval_out_of_distribution"]).default("eval_in_distribution"),
  /** Reward for a solved task. */
  score: z.number().default(10),
});
type AlfworldConfig = z.infer<typeof AlfworldConfig>;

const INSTRUCTION = `You are an expert agent in the ALFRED Embodied Environment.
Complete household tasks by navigating and interacting with objects.

You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within <think> </think> tags.
Once you've finished your reasoning, you should choose an admissible action for current step and present it within <answer>...</answer> tags.
`;

const HELP =
  "Start the server with `python3 examples/remote-envs/alfworld_env.py --port 7110` (after `pip install alfworld` and `alfworld-download`), " +
  "or set env.options.url.";

/** Makes a player of this env from a player of remote games. */
const remotely =
  (player: Player): Player =>
  (game, actionsLeft, uniform) =>
    player(expectGame(game, AlfworldGame).remote, actionsLeft, uniform);

function parts(config: AlfworldConfig): Parts {
  const { split, validationGames, score, expert } = config;
  const client = new RemoteClient({ ...config, env: "alfworld", name: "the ALFWorld server", help: HELP });
  return {
    external: true,
    wording: plainWording(INSTRUCTION, null, false),
    open(seeds) {
      const games = splitOfSeed(split, seeds.layout) === "train" ? "train" : validationGames;
      const opening = { env: "alfworld", seeds, expert, options: { split: games, expert } };
      return new AlfworldGame(new RemoteGame(client, opening), score);
    },
    random: remotely(remoteRandom),
    ...(expert ? { expert: remotely(remoteExpert) } : {}),
  };
}

const alfworld = (tag: string, defaults: Partial<AlfworldConfig>): TagSource =>
  defineTag({
    tag,
    type: "alfworld",
    schema: AlfworldConfig,
    defaults,
    actionsMax: 50,
    replyWordsHint: 512,
    parts,
  });

export const alfworldTags: readonly TagSource[] = [
  alfworld("Alfworld", {}),
  alfworld("AlfworldOOD", { validationGames: "eval_out_of_distribution" }),
];

/**
 * A household task of ALFWorld on a remote env server. The class adds the admissible actions to the observation, and pays RAGEN's reward.
 * Source: RAGEN-2 ragen/env/alfworld/env.py.
 */
class AlfworldGame implements OutsideGame {
  readonly kind = "outside";
  /** The game takes any text; only `admissible` actions are valid. */
  readonly actions = null;
  readonly remote: RemoteGame;
  readonly #score: number;

  /** @param score  the reward for solving the task; all other rewards are 0. */
  constructor(remote: RemoteGame, score: number) {
    this.remote = remote;
    this.#score = score;
  }

  start(): Promise<void> {
    return this.remote.start();
  }

  get admissible(): readonly string[] {
    return this.remote.admissible ?? [];
  }

  render(): string {
    return `${this.remote.render()}\n\nAdmissible actions: [${this.admissible.join(", ")}]`;
  }

  async act(action: string): Promise<Effect> {
    const valid = this.admissible.includes(action);
    const { success, done } = await this.remote.act(action);
    return { reward: success ? this.#score : 0, done, effective: true, valid, success };
  }

  close(): Promise<void> {
    return this.remote.close();
  }
}

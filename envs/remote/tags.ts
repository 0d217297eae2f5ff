/** Remote: an env in any language, served over HTTP as docs/remote-envs.md describes. */
import { z } from "zod";
import { formatReply } from "../demonstrator.ts";
import { NoRandomPlayer, serverOptions, serverUrl } from "../outside/json-server.ts";
import {
  type Demonstrator,
  defineTag,
  expectGame,
  type Parts,
  type Player,
  plainWording,
  type TagSource,
} from "../tag.ts";
import { RemoteClient } from "./client.ts";
import { RemoteGame } from "./game.ts";

/** The options of every env on a remote server. */
export const remoteOptions = {
  url: serverUrl("http://127.0.0.1:7100"),
  ...serverOptions,
  /** Maximum number of concurrent requests; further requests wait. */
  requestsMax: z.int().positive().default(64),
  /** True: the server also returns its expert's action. `--policy expert` and Remote's demonstrator play this action. */
  expert: z.boolean().default(false),
};

const RemoteConfig = z.strictObject({
  ...remoteOptions,
  /** Name of the server's env; null selects the server's first env. */
  env: z.string().min(1).nullable().default(null),
  /** The env's own options; the server receives them unchanged. */
  options: z.record(z.string(), z.unknown()).default({}),
  /** The task in one line, for the prompt. */
  instruction: z.string().default(""),
  /** Actions that the prompt lists; null lists none. */
  actions: z.array(z.string().min(1)).min(1).nullable().default(null),
});

const HELP = "Start the server, or set env.options.url; see docs/remote-envs.md.";

export const remoteRandom: Player = (game, _actionsLeft, uniform) => {
  const { admissible } = expectGame(game, RemoteGame);
  if (admissible === null || admissible.length === 0) {
    throw new NoRandomPlayer(
      "the remote server lists no actions, so there is no random player; see admissible in docs/remote-envs.md",
    );
  }
  return admissible[Math.floor(uniform() * admissible.length)]!;
};

export const remoteExpert: Player = (game) => {
  const { expert } = expectGame(game, RemoteGame);
  if (expert === null)
    throw new Error("the remote server gave no action of an expert; set env.options.expert to false");
  return expert;
};

/** Plays one action per turn, because the server reports the expert's next action only after an action. */
const remoteDemonstrator: Demonstrator = {
  reply(game, actionsLeft, { babble, noise }, uniform) {
    const isRandom = uniform() < babble || uniform() < noise;
    const action = (isRandom ? remoteRandom : remoteExpert)(game, actionsLeft, uniform) as string;
    return formatReply(`try ${action}`, [action]);
  },
};

function parts(config: z.infer<typeof RemoteConfig>): Parts {
  const { env, expert, options, instruction, actions } = config;
  const client = new RemoteClient({ ...config, name: "the remote env server", help: HELP });
  return {
    external: true,
    wording: plainWording(instruction, actions, false),
    open: (seeds) => new RemoteGame(client, { env, seeds, expert, options }),
    random: remoteRandom,
    ...(expert ? { expert: remoteExpert, demonstrator: remoteDemonstrator } : {}),
  };
}

export const remoteTags: readonly TagSource[] = [
  defineTag({
    tag: "Remote",
    type: "remote",
    schema: RemoteConfig,
    actionsMax: 10,
    replyWordsHint: 200,
    parts,
  }),
];

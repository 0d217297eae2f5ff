/** Remote: an env of any language, served over HTTP; docs/remote-envs.md says how. */
import { z } from "zod";
import { JsonServer, serverOptions, serverUrl } from "../outside/json-server.ts";
import { defineTag, expectGame, type Parts, type Player, plainWording, type TagSource } from "../tag.ts";
import { RemoteClient } from "./client.ts";
import { RemoteGame } from "./game.ts";

/** The keys of every env that a remote server plays. */
export const remoteOptions = {
  url: serverUrl("http://127.0.0.1:7100"),
  ...serverOptions,
  /** Requests at once; further asks wait. */
  requestsMax: z.int().positive().default(64),
  /** Asks that travel in one request when several wait; 1: each has a request of its own. */
  batchMax: z.int().positive().default(1),
  /** The server says what its own player would do: for `--policy optimal`. */
  expert: z.boolean().default(false),
};

const RemoteConfig = z.strictObject({
  ...remoteOptions,
  /** Which of the server's envs; null: its first. */
  env: z.string().min(1).nullable().default(null),
  /** The env's own options, given to the server as they are. */
  options: z.record(z.string(), z.unknown()).default({}),
  /** What the agent is told of the task, in one line. */
  instruction: z.string().default(""),
  /** Actions that the prompt lists; null: it lists none. */
  actions: z.array(z.string().min(1)).min(1).nullable().default(null),
});

const HELP = "Start it, or set env.options.url; docs/remote-envs.md says how.";

type ClientConfig = Omit<z.infer<typeof RemoteConfig>, "options" | "instruction" | "actions">;

export function remoteClient(config: ClientConfig, name = "the remote env server", help = HELP): RemoteClient {
  return new RemoteClient(new JsonServer({ ...config, name, help }), config);
}

/** Chooses uniformly among what the server says makes sense now. */
export const remoteRandom: Player = (game, _actionsLeft, uniform) => {
  const { admissible } = expectGame(game, RemoteGame);
  if (admissible === null || admissible.length === 0) {
    throw new Error("the server lists no actions, so nobody can choose among them at random; see docs/remote-envs.md");
  }
  return admissible[Math.floor(uniform() * admissible.length)]!;
};

/** Does what the server's own player would do. */
export const remoteExpert: Player = (game) => {
  const { expert } = expectGame(game, RemoteGame);
  if (expert === null) throw new Error("the server has no player of its own; set env.options.expert to false");
  return expert;
};

function parts(config: z.infer<typeof RemoteConfig>): Parts {
  const { env, expert, options, instruction, actions } = config;
  const client = remoteClient(config);
  return {
    needs: "a server of remote envs at env.options.url",
    wording: plainWording(instruction, actions, false),
    open: (seeds) => new RemoteGame(client, { env, seeds, expert, options }),
    brief: (observation) => observation,
    random: remoteRandom,
    optimal: expert ? remoteExpert : null,
    best: () => null,
    demonstrator: null,
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

/** `bun run board`: draws a board as a PNG, or the positions of a player's episode as a strip, for envs that draw pictures. */
import { encode } from "fast-png";
import { writeWhole } from "../actors/checkpoint/disk.ts";
import { runKeys } from "../actors/config/config.ts";
import { messageOf } from "../actors/errors.ts";
import { filmStrip, type Picture } from "../envs/picture.ts";
import { envTag, envTags } from "../envs/registry.ts";
import { Pcg64 } from "../envs/rng/pcg64.ts";
import { dynamicsSeed } from "../envs/seeds.ts";
import { type EnvTag, openLocal } from "../envs/tag.ts";
import { checkedTag } from "../library/policy.ts";
import { type Command, expectOnly, flag, type Parsed, UsageError } from "./cli/options.ts";
import { envOverrides } from "./cli/presets.ts";

const drawn = envTags().filter((name) => envTag(name).picture !== undefined);

export const command = {
  flags: {
    env: flag.text("TAG", `Env of the board: ${drawn.join(", ")} (default: SimpleSokoban)`, "env.tag"),
    seed: flag.count("S", "Layout seed of the board (default: 123)"),
    policy: flag.text("PLAYER", "random or optimal: also draw the board after each of this player's actions"),
    out: flag.text("FILE", "Output file ending in .png (default: board.png)"),
  },
  examples: [
    "bun run board --env LargerSokoban --seed 7",
    "bun run board --env SimpleSokoban --policy optimal --out way.png",
    "bun run board --env SimpleSokoban --env.options.dimRoom=[10,8]",
  ],
  overrides: runKeys,
  keys: "env.options or env.actionsMax",
} as const satisfies Command;

/** The number of pictures in a row of the strip, and the white space between two pictures in pixels. */
const COLUMNS = 5;
const GAP = 8;

export async function main({ flags, overrides }: Parsed<typeof command>): Promise<number> {
  const { seed = 123, policy, out = "board.png" } = flags;
  if (!out.endsWith(".png")) throw new UsageError(`--out ${out}: the file must end in .png`);
  if (seed >= 2 ** 32) throw new UsageError(`--seed must be below ${2 ** 32}, got ${seed}`);
  expectOnly(/^env\.(tag|options|actionsMax)\b/, overrides, "board takes env.options and env.actionsMax only");
  const env = envOverrides(overrides);
  const tag = checkedTag(String(env["tag"] ?? "SimpleSokoban"), env["options"]);
  if (tag.picture === undefined) throw new UsageError(`${tag.tag} draws no pictures; use one of ${drawn.join(", ")}`);
  const actionsMax = env["actionsMax"] ?? tag.actionsMax;
  if (!Number.isSafeInteger(actionsMax) || Number(actionsMax) < 1)
    throw new UsageError(`--env.actionsMax must be a whole number, 1 or more, got ${actionsMax}`);
  if (policy === undefined && env["actionsMax"] !== undefined)
    throw new UsageError("--env.actionsMax limits the actions of a player; add --policy, or leave it out");
  const pictures = positions(tag, policy, seed, Number(actionsMax));
  const { width, height, rgb } = filmStrip(pictures, COLUMNS, GAP);
  try {
    const png = encode({ width, height, data: rgb, channels: 3 });
    await writeWhole(out, (pending) => Bun.write(pending, png));
  } catch (error) {
    throw new UsageError(`cannot write --out ${out}: ${messageOf(error)}; name another file`);
  }
  console.log(out);
  return 0;
}

/** The opening position. If there is a player, also the position after each action of the player. */
function positions(tag: EnvTag, policy: string | undefined, seed: number, actionsMax: number): Picture[] {
  const game = openLocal(tag, { layout: seed, dynamics: dynamicsSeed(seed, 0) });
  const pictures = [tag.picture!(game)];
  if (policy === undefined) return pictures;
  if (policy !== "random" && policy !== "optimal")
    throw new UsageError(`--policy must be random or optimal, got ${policy}`);
  const player = tag[policy];
  if (player === null) throw new UsageError(`${tag.tag} has no optimal player; use --policy random`);
  const coins = new Pcg64(seed);
  for (let left = actionsMax; left > 0; left--) {
    const action = player(game, left, () => coins.random());
    const { done } = game.kind === "discrete" ? game.act(Number(action)) : game.act(String(action));
    pictures.push(tag.picture!(game));
    if (done) break;
  }
  return pictures;
}

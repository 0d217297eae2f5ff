/**
 * `bun run play`: lets a person play an env in the terminal, with the limits that a policy has. A turn is one line of actions with || between them.
 */
import { runKeys } from "../actors/config/config.ts";
import { visible } from "../actors/dashboard/client/text.ts";
import { plural } from "../actors/number-text.ts";
import { actionsAllowed, episodeRules, tagOf } from "../actors/play/envs-of-run.ts";
import type { Env, Turn } from "../envs/env.ts";
import { openEpisode } from "../envs/episode.ts";
import { envTags } from "../envs/registry.ts";
import { dynamicsSeed } from "../envs/seeds.ts";
import type { EnvTag } from "../envs/tag.ts";
import { checkedTag } from "../library/policy.ts";
import { type Command, expectOnly, flag, type Parsed, UsageError } from "./cli/options.ts";
import { chooseConfig, envOverrides } from "./cli/presets.ts";
import { write } from "./cli/print.ts";

export const command = {
  words: { show: "ENV", text: `Env to play: ${envTags().join(", ")}`, max: 1 },
  flags: {
    seed: flag.count("S", "Layout seed of the board (default: 123)"),
    json: flag.switch("End standard output with one JSON object"),
  },
  examples: [
    "bun run play SimpleSokoban",
    "bun run play FrozenLake --seed 7 --env.options.successRate=1",
    "printf 'Right || Down\\nLeft\\n' | bun run play SimpleSokoban --seed 5 --json",
  ],
  overrides: runKeys,
  keys: "A key of env",
} as const satisfies Command;

export async function main({ flags, words, overrides }: Parsed<typeof command>): Promise<number> {
  const { seed = 123, json } = flags;
  const [name] = words;
  if (name === undefined) throw new UsageError(`name the env to play: ${envTags().join(", ")}`);
  if (seed >= 2 ** 32) throw new UsageError(`--seed must be below ${2 ** 32}, got ${seed}`);
  expectOnly(/^env\.(?!tag$)/, overrides, "play takes only keys of env; name the env itself as ENV");
  checkedTag(name, envOverrides(overrides)["options"]);
  const config = chooseConfig({ flags: {}, overrides: [{ path: "env.tag", text: name, source: name }, ...overrides] });
  const tag = tagOf(config, name);
  const rules = episodeRules(config, name, tag);
  const game = tag.open({ layout: seed, dynamics: dynamicsSeed(seed, 0) });
  const best = tag.best(game, actionsAllowed(rules));
  console.log(opening(tag, rules.actionsMax, rules.turnsMax));
  const played = await playByHand(
    await openEpisode(game, rules),
    tag.wording.actions,
    rules.think ? "<think></think>" : "",
  );
  const { solved, ending, reward, turns, actions } = played;
  console.log(
    `${solved ? "solved" : "not solved"}${ending === null ? ", given up" : ` (${ending})`}: reward ${rounded(reward)}, ${plural(turns, "turn")}, ${plural(actions, "action")}`,
  );
  if (best !== null) console.log(`the best possible player solves this board with probability ${rounded(best)}`);
  if (json) console.log(JSON.stringify({ env: name, seed, ...played, best }));
  return 0;
}

/** The task as a pretrained model reads it. */
function opening({ wording }: EnvTag, actionsMax: number, turnsMax: number): string {
  const { legend, actions, strict } = wording;
  return [
    strict.v1.trim(),
    ...(legend === null ? [] : [`Symbols: ${legend.map(([symbol, meaning]) => `${symbol} ${meaning}`).join(", ")}`]),
    ...(actions === null ? [] : [`Actions: ${actions.join(", ")}; several in one turn with || between them`]),
    `At most ${plural(actionsMax, "action")} in ${plural(turnsMax, "turn")}. An empty line gives up.`,
  ].join("\n");
}

/** @param thought  the text that every reply must have before its answer */
async function playByHand(env: Env, actions: readonly string[] | null, thought: string) {
  const sum = { solved: false, ending: null as Turn["ending"], reward: 0, turns: 0, actions: 0 };
  console.log(`\n${visible(env.opening)}`);
  try {
    prompt(env.actionsLeft);
    for await (const line of console) {
      if (line.trim() === "") break;
      const turn = await env.step(`${thought}<answer>${line.trim()}</answer>`);
      sum.turns++;
      sum.actions += turn.actions.length;
      sum.reward += turn.reward + turn.penalty;
      const executed = turn.actions.length === 0 ? "nothing was executed" : `executed ${turn.actions.join(", ")}`;
      const hint = turn.wellFormed || actions === null ? "" : ` (the actions are ${actions.join(", ")})`;
      const penalty = turn.penalty === 0 ? "" : `, penalty ${rounded(turn.penalty)}`;
      console.log(
        `${visible(executed)}${hint}: reward ${rounded(turn.reward)}${penalty}\n\n${visible(turn.observation)}`,
      );
      if (turn.ending !== null) return { ...sum, solved: turn.success, ending: turn.ending };
      prompt(turn.actionsLeft);
    }
  } finally {
    await env.close();
  }
  return sum;
}

function prompt(actionsLeft: number): void {
  write(`${plural(actionsLeft, "action")} left> `);
}

const rounded = (value: number): string => String(Math.round(value * 1000) / 1000);

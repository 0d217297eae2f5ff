/** `bun run config`: prints every key of the config that a run would have, with its value and meaning. Runs nothing. */
import { describeConfig, runKeys, withoutSecrets } from "../actors/config/config.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { chooseConfig, configFlags } from "./cli/presets.ts";
import { table } from "./cli/texts.ts";

export const command = {
  flags: {
    ...configFlags,
    json: flag.switch("Print one JSON object"),
    markdown: flag.switch("Print the text of docs/configuration.md"),
  },
  examples: [
    "bun run config",
    "bun run config --preset starpo-ppo --env FrozenLake",
    "bun run config --learner.learningRate=1e-4 --json",
  ],
  overrides: runKeys,
} as const satisfies Command;

export async function main(options: Parsed<typeof command>): Promise<number> {
  const { markdown: asPage, json } = options.flags;
  if (asPage && json) throw new UsageError("--json and --markdown print the keys in two forms; leave one out");
  if (asPage) {
    const files = (["preset", "config"] as const).filter((name) => options.flags[name] !== undefined);
    const chosen = files.map((name) => `--${name} ${options.flags[name]}`);
    const [other] = [...chosen, ...options.overrides.map(({ source }) => source)];
    if (other !== undefined) throw new UsageError(`--markdown prints the defaults of the schema; leave out ${other}`);
    console.log(markdown());
    return 0;
  }
  const config = chooseConfig(options);
  const lines = describeConfig(config).split("\n");
  if (json) {
    console.log(JSON.stringify(withoutSecrets(config)));
  } else {
    const width = Math.min(44, Math.max(...lines.map((line) => line.length)));
    for (const [i, key] of runKeys.all.entries()) console.log(`${lines[i]!.padEnd(width)}  # ${key.description}`);
  }
  return 0;
}

function markdown(): string {
  const rows = runKeys.all.map(({ path, type, default: value, description }) => {
    const shown = JSON.stringify(value);
    return [`\`${path}\``, type, shown.length > 40 ? "see `bun run config`" : `\`${shown}\``, description];
  });
  return [
    "# Configuration",
    "",
    "This page lists every key of a run; `bun run config --markdown` prints the page. Set a key in a file (`--config FILE`) or as `--section.key=value`.",
    "The defaults are those of the schema, without a preset. `bun run cluster` uses the preset `quickstart`, which changes some of them; `bun run config` shows the values of this preset.",
    "",
    ...table([["key", "type", "default", "meaning"], ...rows]),
  ].join("\n");
}

/** Makes the API's context from a run's config and folder. */
import { basename, dirname, join, resolve } from "node:path";
import { envTags } from "../../envs/registry.ts";
import { type Legend, TagError } from "../../envs/tag.ts";
import { CheckpointFormatError } from "../../model/checkpoint/config.ts";
import { type RunConfig, runKeys, shownValue } from "../config/config.ts";
import { episodeRules, playedEnvs, tagOf } from "../play/envs-of-run.ts";
import { policyOf } from "../policy/pretrained.ts";
import { readStarts } from "../record/starts.ts";
import type { CellKind, PlayAnswer, SetupAnswer } from "./answers.ts";
import type { ApiContext } from "./api.ts";
import { NearbyRuns } from "./runs.ts";

/** @param notice  receives one text for each part of the run that the page cannot show, for example because the model is gone */
export function apiContextOf(
  config: RunConfig,
  folder: string,
  notice: (text: string) => void = () => {},
): Omit<ApiContext, "store"> {
  const path = resolve(folder);
  return {
    setup: () => setupOf(config, folder),
    play: playOf(config, notice),
    dialogue: dialogueOf(config, notice),
    nearby: new NearbyRuns(dirname(path), basename(path)),
    ratings: join(path, "ratings.jsonl"),
  };
}

function setupOf(config: RunConfig, folder: string): SetupAnswer {
  const settings = runKeys.all.map((key) => {
    return { path: key.path, value: shownValue(config, key.path), default: key.default ?? null };
  });
  return { starts: readStarts(folder), settings };
}

/** The policy's tokenizer and chat template; null if, for example, the pretrained model was removed after the run. */
function dialogueOf(config: RunConfig, notice: (text: string) => void): ApiContext["dialogue"] {
  try {
    return policyOf(config).dialogue;
  } catch (error) {
    if (!(error instanceof CheckpointFormatError)) throw error;
    notice(`episodes are shown without their tokens: ${error.message}`);
    return null;
  }
}

function playOf(config: RunConfig, notice: (text: string) => void): PlayAnswer {
  // The page shows no replay of an env whose tag this process does not know, or of an env that refuses the options of the run.
  const envs = playedEnvs(config).flatMap(({ name, tag, options }) => {
    if (!envTags().includes(tag)) return [];
    try {
      const made = tagOf(config, name);
      const symbols = symbolsOf(made.wording.legend);
      return [{ name, tag, options: { ...options }, symbols, rules: episodeRules(config, name, made) }];
    } catch (error) {
      if (!(error instanceof TagError)) throw error;
      notice(`episodes of ${name} are shown without replay: ${error.message}`);
      return [];
    }
  });
  return { compat: config.prompt.compat, envs };
}

/** The kinds of symbols. A symbol has the kind of the first pattern that matches the symbol's meaning in the legend. */
const KINDS: readonly (readonly [RegExp, CellKind])[] = [
  [/^(box on target|player on goal|success)/, "done"],
  [/^player/, "player"],
  [/^box$/, "box"],
  [/^(target|goal)$/, "target"],
  [/^(wall|hole)$/, "wall"],
  [/^(empty|frozen)/, "floor"],
];

function symbolsOf(legend: Legend | null): PlayAnswer["envs"][number]["symbols"] {
  const known = (legend ?? []).map(([symbol, meaning]) => [symbol, KINDS.find(([words]) => words.test(meaning))?.[1]]);
  return Object.fromEntries(known.filter(([, kind]) => kind !== undefined));
}

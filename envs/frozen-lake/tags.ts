/** The FrozenLake tags. Source: RAGEN config/envs.yaml, both versions. */
import { gridScorer } from "../analysis/grid-reasoning.ts";
import { cached } from "../data/cached.ts";
import { defineTag, legendOf, type Parts, type TagSource, uniformPlayer } from "../tag.ts";
import { FROZEN_LAKE_ACTIONS, FrozenLakeConfig, FrozenLakeGame, LAKE_MEANINGS } from "./game.ts";
import { generateLake, type Lake } from "./map.ts";
import { bestFrozenLake, frozenLakeDemonstrator, optimalFrozenLake } from "./plan.ts";

const INSTRUCTION =
  "You are solving the FrozenLake puzzle. Forbid the whole and go to the target. You may move to the unintended direction due to the slippery ice. Example answer format: <think>To forbid the hole and go to the target, I should go left then go up.</think><answer>Left || Up</answer>";
const CORRECTED = INSTRUCTION.replace("Forbid the whole", "Avoid the holes").replace(
  "To forbid the hole",
  "To avoid the hole",
);

const coordLines = (
  lastCell: string,
) => `You are solving the FrozenLake puzzle. The observation includes both a symbol grid and zero-indexed coordinates for the start, goal, player, and any holes.
Coordinates range from the top-left corner (0, 0) to the bottom-right corner ${lastCell}.
Beware that the ice is slippery, so the agent might slide and end up in an unintended tile.
Respond with a sequence of actions such as <answer>Left || Up || Up</answer>.
`;

const COORDINATE_HINT =
  "States are provided as coordinate lists using zero-based indexing with the format (row, col) for the start, the goal, the player and the holes.";

const DEFAULT_LEGEND = legendOf(FrozenLakeConfig.parse({}).gridLookup, LAKE_MEANINGS);

function parts(config: FrozenLakeConfig, coordinates: boolean): Parts {
  const coord = (cell: string) => ({ v1: coordLines(cell).trimEnd(), v2: coordLines(cell) });
  // The episodes of a group and the random plays of a board open the same lake many times.
  const lakes = cached<Lake>(1);
  const legend = config.observationFormat === "coord" ? null : legendOf(config.gridLookup, LAKE_MEANINGS);
  return {
    wording: {
      ...(coordinates ? coord("(5, 5)") : { v1: INSTRUCTION, v2: INSTRUCTION }),
      strict: coordinates ? coord(`(${config.size - 1}, ${config.size - 1})`) : { v1: CORRECTED, v2: CORRECTED },
      legend,
      compatLegend: DEFAULT_LEGEND,
      coordinateHint: legend === null ? COORDINATE_HINT : null,
      actions: FROZEN_LAKE_ACTIONS,
      // gymnasium 1.3 pays 1 and 0; older releases paid 1.0 and 0.0.
      integerRewards: true,
    },
    open: (seeds) => {
      const lake = lakes(String(seeds.layout), () => generateLake(config.size, config.p, seeds.layout));
      return new FrozenLakeGame(lake, config, seeds);
    },
    brief: (observation) => brief(config, observation),
    random: uniformPlayer,
    optimal: optimalFrozenLake,
    best: bestFrozenLake,
    demonstrator: frozenLakeDemonstrator,
    reasoning: gridScorer(legend),
  };
}

/** The cells row by row. If the observation has coordinates, also the start, because the grid hides the start after the player has left it. */
function brief(config: FrozenLakeConfig, observation: string): string {
  if (config.observationFormat === "coord") return observation.slice(observation.indexOf("\n") + 1);
  const cells = observation.split("\n").slice(-config.size).join("");
  if (config.observationFormat === "grid") return cells;
  const start = /^Start: \((\d+), (\d+)\)$/m.exec(observation)!;
  return `${cells} ${start[1]},${start[2]}`;
}

const frozenLake = (
  tag: string,
  defaults: Partial<FrozenLakeConfig>,
  replyWordsHint: number,
  coordinates: boolean,
): TagSource =>
  defineTag({
    tag,
    type: "frozen_lake",
    schema: FrozenLakeConfig,
    defaults,
    compatDefaults: (version): Partial<FrozenLakeConfig> => ({
      sharedStream: true,
      ...(version === "ragen-v2" ? { p: 0.9, successRate: 0.8 } : {}),
    }),
    actionsMax: 10,
    replyWordsHint,
    parts: (config) => parts(config, coordinates),
  });

export const frozenLakeTags: readonly TagSource[] = [
  frozenLake("FrozenLake", {}, 100, false),
  frozenLake("CoordFrozenLake", { p: 0.9, successRate: 0.8, observationFormat: "grid_coord" }, 120, true),
];

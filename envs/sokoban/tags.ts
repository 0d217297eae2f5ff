/** The Sokoban tags. Source: RAGEN config/envs.yaml, both versions. */
import { gridScorer } from "../analysis/grid-reasoning.ts";
import { cached } from "../data/cached.ts";
import { defineTag, expectGame, legendOf, type Parts, type TagSource, uniformPlayer } from "../tag.ts";
import { SokobanConfig, SokobanGame, SYMBOL_MEANINGS } from "./game.ts";
import { generateBoard } from "./generate.ts";
import { bestSokoban, optimalSokoban, sokobanDemonstrator } from "./players.ts";
import { sokobanPicture } from "./render.ts";
import { type Board, SOKOBAN_ACTIONS } from "./rules.ts";

const LINES = [
  "You are solving the Sokoban puzzle. ",
  "You are the player and you need to push all boxes to targets. ",
  "When you are right next to a box, you can push it by moving in the same direction. ",
  "You cannot push a box through a wall, and you cannot pull a box. ",
  "The answer should be a sequence of actions, like <answer>Right || Right || Up</answer>",
];

const coordLines = (
  lastCell: string,
) => `You are solving the Sokoban puzzle. You are the player and you need to push all boxes to targets.
You are provided with a symbol grid and the zero-indexed coordinates of the player, each box, and each target. 
Coordinates range from the top-left corner (0, 0) to the bottom-right corner ${lastCell}. 
When you are exactly next to a box, you can push it by moving in the same direction. 
You cannot push a box through a wall, and you cannot pull a box.
The answer should be a sequence of actions, like <answer>Right || Right || Up</answer>.
`;

const COORDINATE_HINT =
  "States are provided as coordinate lists using zero-based indexing with the format (row, col) for each entity type: Targets, Boxes, Boxes on target, Player, and Player on target when applicable.";

const DEFAULT_LEGEND = legendOf(SokobanConfig.parse({}).gridLookup, SYMBOL_MEANINGS);

function parts(config: SokobanConfig, coordinates: boolean): Parts {
  const [rows, cols] = config.dimRoom;
  // The episodes of a group and the random plays of a board open the same board many times. The generation of a board takes ten times as long
  // as a play of the board.
  const boards = cached<{ readonly board: Board; readonly texts: Map<number, string> }>(1);
  const plain = { v1: LINES.join(""), v2: `${LINES.join("\n")}\n` };
  const coord = (cell: string) => ({ v1: coordLines(cell).trimEnd(), v2: coordLines(cell) });
  const shipped = coordinates ? coord("(5, 5)") : plain;
  const legend = config.observationFormat === "coord" ? null : legendOf(config.gridLookup, SYMBOL_MEANINGS);
  return {
    wording: {
      ...shipped,
      strict: coordinates ? coord(`(${rows - 1}, ${cols - 1})`) : plain,
      legend,
      compatLegend: DEFAULT_LEGEND,
      coordinateHint: legend === null ? COORDINATE_HINT : null,
      actions: SOKOBAN_ACTIONS,
      integerRewards: false,
    },
    open: ({ layout }) => {
      const make = () => ({ board: generateBoard(config, layout).board, texts: new Map<number, string>() });
      const { board, texts } = boards(String(layout), make);
      const { fixed, state } = board;
      return new SokobanGame({ rows, cols, fixed, state: state.slice() }, config, texts);
    },
    brief: (observation) => brief(config, observation),
    // The observation does not show the steps, and the last step ends the game.
    deterministicActions: config.maxSteps - 1,
    random: uniformPlayer,
    optimal: optimalSokoban,
    best: (game, actionsMax) => bestSokoban(game, Math.min(actionsMax, config.maxSteps)),
    demonstrator: sokobanDemonstrator,
    reasoning: gridScorer(legend),
    picture: (game) => sokobanPicture(expectGame(game, SokobanGame).board),
  };
}

/** The cells inside the ring of walls, row by row; for `coord`, all lines except the board's size. */
function brief(config: SokobanConfig, observation: string): string {
  if (config.observationFormat === "coord") return observation.slice(observation.indexOf("\n") + 1);
  const rows = observation.split("\n").slice(-config.dimRoom[0]);
  return rows
    .slice(1, -1)
    .map((row) => row.slice(1, -1))
    .join("");
}

const sokoban = (tag: string, defaults: Partial<SokobanConfig>, replyWordsHint = 100, coordinates = false): TagSource =>
  defineTag({
    tag,
    type: "sokoban",
    schema: SokobanConfig,
    defaults,
    actionsMax: 10,
    replyWordsHint,
    parts: (config) => parts(config, coordinates),
  });

export const sokobanTags: readonly TagSource[] = [
  sokoban("SimpleSokoban", { numBoxes: 1 }),
  sokoban("LargerSokoban", { dimRoom: [8, 8], numBoxes: 2, searchDepth: 10 }),
  sokoban("SokobanDifferentGridVocab", {
    numBoxes: 1,
    searchDepth: 30,
    gridLookup: ["W", ".", "G", "C", "B", "A", "@"],
  }),
  sokoban("CoordSokoban", { numBoxes: 1, observationFormat: "grid_coord" }, 120, true),
];

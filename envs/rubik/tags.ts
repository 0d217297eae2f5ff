/** The cube's tag. Source: RAGEN-2 config/envs.yaml. */
import { defineTag, expectGame, plainWording, type TagSource, uniformPlayer } from "../tag.ts";
import { solveCube, TURNS } from "./cube.ts";
import { RubikConfig, RubikGame } from "./game.ts";

const INSTRUCTION = `You are solving a 2x2 Rubik's Cube (Pocket Cube). The goal is to restore the cube so that each of the faces consists of a single, unique color.
Available actions use standard Singmaster notation for face rotations: U, U', D, D', L, L', R, R', F, F', B, B'.
- Faces: U (Up), D (Down), L (Left), R (Right), F (Front), B (Back).
- Modifiers: A letter alone means 90° clockwise (e.g., 'R'). A letter with prime (') means 90° counter-clockwise (e.g., "R'").
Respond with a sequence of actions separated by "||".
Example: <answer>U</answer>
`;

function solutionOf(game: RubikGame): number[] | null {
  return solveCube(game.state, game.turns, game.config.scrambleDepth);
}

export const rubikTags: readonly TagSource[] = [
  defineTag({
    tag: "rubikscube",
    type: "rubikscube",
    schema: RubikConfig,
    defaults: { scrambleDepth: 1 },
    compatDefaults: { shippedBack: true, endingHidden: true },
    actionsMax: 20,
    replyWordsHint: 96,
    parts: (config) => ({
      wording: plainWording(INSTRUCTION, TURNS, false),
      open: (seeds) => new RubikGame(config, seeds),
      brief,
      stateOf: (observation) => brief(observation).replace(/^\S+ /, ""),
      random: uniformPlayer,
      optimal: (game, actionsLeft, uniform) =>
        solutionOf(expectGame(game, RubikGame))?.[0] ?? uniformPlayer(game, actionsLeft, uniform),
      best: (game, actionsMax) => {
        const path = solutionOf(expectGame(game, RubikGame));
        if (path === null) return 0;
        // A cube that is solved at the start takes a turn and its undoing.
        return (path.length || 2) <= Math.min(actionsMax, config.maxSteps) ? 1 : 0;
      },
    }),
  }),
];

/** The step and the 24 colors, which determine the rest. */
function brief(observation: string): string {
  const colors = [...observation.matchAll(/\[(\w), (\w)\]/g)].map((match) => match[1]! + match[2]!).join("");
  return `${/^Step: (.*)$/m.exec(observation)![1]} ${colors}`;
}

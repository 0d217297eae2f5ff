/** The 2048 tag. Source: RAGEN-2 config/envs.yaml. */
import { defineTag, plainWording, type TagSource, uniformPlayer } from "../tag.ts";
import { ACTIONS_2048, Config2048, Game2048, MOVES_MIN } from "./game.ts";

const instruction = (size: number) =>
  `You are playing the 2048 game on a ${size}x${size} grid. Merge equal tiles by sliding Up, Right, Down, or Left.\nIf a move is invalid (no tiles move), a small penalty is applied. Respond with a single action.\nExample: <answer>Up</answer>\n`;

export const game2048Tags: readonly TagSource[] = [
  defineTag({
    tag: "game_2048",
    type: "game_2048",
    schema: Config2048,
    compatDefaults: { sharedStream: true, hideInvalidScore: true },
    actionsMax: 700,
    replyWordsHint: 8192,
    parts: (config) => ({
      wording: plainWording(instruction(config.size), ACTIONS_2048, false),
      open: (seeds) => new Game2048(config, seeds),
      brief,
      actionsMin: MOVES_MIN,
      random: uniformPlayer,
    }),
  }),
];

/** The rows and the score; the rows determine the possible moves. */
function brief(observation: string): string {
  const rows = [...observation.matchAll(/^Row \d+: \[(.*)\]$/gm)].map((match) => match[1]!.replaceAll(", ", " "));
  const score = /^Current Score: (.*)$/m.exec(observation)!;
  return `${rows.join("\n")}\n${score[1]}`;
}

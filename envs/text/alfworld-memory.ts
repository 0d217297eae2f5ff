/**
 * RAGEN-2's single-message memory for ALFWorld: the task, the last observations and actions, and what to do now.
 * A pure function over the history. Source: RAGEN-2 AlfWorldMemory.
 */
import { replyForm } from "./prompt.ts";

export interface AlfworldTurn {
  readonly observation: string;
  readonly actionsLeft: number;
  /** null for the turn that is asked for now. */
  readonly reply: string | null;
  /** True if the reply before this turn had no known action. */
  readonly nothingRead: boolean;
}

export interface AlfworldMemoryOptions {
  /** Index of the turn that is asked for. */
  readonly turn: number;
  /** Index of the first turn that may be shown. */
  readonly from: number;
  /** Turns shown, the one asked for included; -1 for all. */
  readonly window: number;
  /** Say so if the last reply had no known action. */
  readonly warn: boolean;
  readonly replyWordsHint: number;
  readonly think: boolean;
}

/** An observation is cut beyond this many characters. */
const OBSERVATION_MAX = 200;

export function alfworldMemory(history: readonly AlfworldTurn[], options: AlfworldMemoryOptions): string {
  const { turn, window, warn, replyWordsHint, think } = options;
  const now = history[turn];
  if (now === undefined) throw new RangeError(`turn ${turn} is not in a history of ${history.length} turns`);
  const from = Math.max(options.from, window === -1 ? 0 : turn - window + 1);
  const shown = history.slice(from, turn);
  const lines = [`Your task is to: ${task(history[0]!.observation)}.`];
  if (shown.length > 0) {
    lines.push(
      `Prior to this step, you have already taken ${turn} step(s).`,
      `Below are the most recent ${shown.length} observations and the corresponding actions you took:`,
      ...shown.map(
        ({ observation, reply }, i) =>
          `[Observation ${from + i + 1}: '${shortened(cleaned(observation))}', Action ${from + i + 1}: '${answer(reply ?? "")}']`,
      ),
    );
  }
  lines.push(
    `You are now at step ${turn + 1} and your current observation is: ${cleaned(now.observation)}`,
    `Your admissible actions of the current situation are: [${admissible(now.observation)}]`,
  );
  if (warn && now.nothingRead) {
    lines.push("No valid action provided previously. Environment state remains the same.");
  }
  lines.push(
    `Now it's your turn to take an action. You have ${now.actionsLeft} actions left. Always output: ${replyForm({ think })} with no extra text. Max response length: ${replyWordsHint} words (tokens).`,
  );
  return lines.join("\n");
}

function task(observation: string): string {
  const match = /Your task is to: (.*?)\.?\s*$/m.exec(observation);
  return match === null ? "" : match[1]!;
}

const ADMISSIBLE = /Admissible actions: \[(.*?)\]\s*$/s;

function admissible(observation: string): string {
  return ADMISSIBLE.exec(observation)?.[1] ?? "";
}

/** Without TextWorld's banner, the list of actions and empty lines. */
function cleaned(observation: string): string {
  return observation
    .replace(ADMISSIBLE, "")
    .replace(/-= Welcome to TextWorld, ALFRED! =-/, "")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .join("\n");
}

function shortened(text: string): string {
  return text.length > OBSERVATION_MAX ? `${text.slice(0, OBSERVATION_MAX - 3)}...` : text;
}

function answer(reply: string): string {
  return (/<answer>(.*?)<\/answer>/s.exec(reply)?.[1] ?? reply).trim();
}

/**
 * Builds RAGEN-2's memory for ALFWorld. A memory is the text of a prompt that shows earlier turns in one message (context mode single_turn):
 * here the task, the last observations and actions, and the current turn. `alfworldMemory` is a pure function of the history.
 *
 * Source: RAGEN-2 AlfWorldMemory.
 */
import { replyForm, type TurnPrompt } from "./prompt.ts";

/** Maximum number of characters that the memory shows of an earlier observation. The memory shows the current observation whole. */
const OBSERVATION_MAX = 200;

/** @param from  index of the first turn that the memory shows */
export function alfworldMemory(
  answered: readonly { readonly observation: string; readonly reply: string }[],
  now: Omit<TurnPrompt, "turn">,
  { from, replyWordsHint, think }: { from: number; replyWordsHint: number; think: boolean },
): string {
  const taken = answered.length;
  const shown = answered.slice(from);
  const lines = [`Your task is to: ${task((answered[0] ?? now).observation)}.`];
  if (shown.length > 0) {
    lines.push(
      `Prior to this step, you have already taken ${taken} step(s).`,
      `Below are the most recent ${shown.length} observations and the corresponding actions you took:`,
      ...shown.map(({ observation, reply }, i) => {
        const number = from + i + 1;
        return `[Observation ${number}: '${shortened(cleaned(observation))}', Action ${number}: '${answer(reply)}']`;
      }),
    );
  }
  lines.push(
    `You are now at step ${taken + 1} and your current observation is: ${cleaned(now.observation)}`,
    `Your admissible actions of the current situation are: [${ADMISSIBLE.exec(now.observation)?.[1] ?? ""}]`,
  );
  if (now.noValidAction) lines.push("No valid action provided previously. Environment state remains the same.");
  lines.push(
    `Now it's your turn to take an action. You have ${now.actionsLeft} actions left. Always output: ${replyForm({ think })} with no extra text. Max response length: ${replyWordsHint} words (tokens).`,
  );
  return lines.join("\n");
}

const ADMISSIBLE = /Admissible actions: \[(.*?)\]\s*$/s;

function task(observation: string): string {
  return /Your task is to: (.*?)\.?\s*$/m.exec(observation)?.[1] ?? "";
}

/** Removes TextWorld's banner, the list of actions and empty lines. */
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

/** An agent of the AI SDK as an env: a prize is behind one of two doors, and a tool names this door. */
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";
import { agentEnv } from "../../library/ai.ts";
import { formatReply } from "../../library/env.ts";

export const DOORS = ["A", "B"] as const;

/** The agent. This function does not use Bunraku. */
export async function openDoor(model: Parameters<typeof generateText>[0]["model"], prize: string) {
  const peek = tool({
    description: "Looks behind the doors.",
    inputSchema: z.object({}),
    execute: () => prize,
  });
  return generateText({ model, prompt: "Which door?", tools: { peek }, stopWhen: isStepCount(3) });
}

export default agentEnv({
  tag: "Doors",
  instruction: "Open the door with the prize.",
  actionsMax: 3,
  task: (_, { layout }) => DOORS[layout % 2]!,
  async agent(model, prize) {
    const { text, steps } = await openDoor(model, prize);
    return { reward: Number(text === prize) - 0.1 * steps.length, success: text === prize };
  },
  random: (_, __, uniform) => ["peek {}", ...DOORS][Math.floor(3 * uniform())]!,
  demonstrator: {
    reply(game) {
      const seen = /^peek: (\w)$/.exec(game.render())?.[1];
      return seen === undefined ? formatReply("peek", ["peek {}"]) : formatReply(seen, [seen]);
    },
  },
});

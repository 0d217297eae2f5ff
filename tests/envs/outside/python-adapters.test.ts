/** The adapters of examples/remote-envs, each over an env that others wrote; and an agent with an OpenAI client, by its wire. */
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { evaluatePlayer } from "../../../envs/analysis/evaluate.ts";
import type { OutsideGame } from "../../../envs/env.ts";
import { envTag } from "../../../envs/registry.ts";
import { lackOfPython, testWhere } from "../../needs.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { startPython } from "./python-server.ts";

/** Importing these packages takes seconds. */
const adapted = (module: string, name: string, body: () => Promise<void>) =>
  testWhere(lackOfPython(module), name, body, 300_000);

async function opened(url: string, options: object = {}, layout = 3, dynamics = 1): Promise<OutsideGame> {
  const game = envTag("Remote", { url, retryMs: 1, ...options }).open({ layout, dynamics }) as OutsideGame;
  await game.start();
  return game;
}

adapted("gymnasium", "Gymnasium's FrozenLake, Taxi and Blackjack are played as text", async () => {
  await using python = await startPython("gymnasium_env.py", ["FrozenLake-v1", "Taxi-v4", "Blackjack-v1"]);
  const { url } = python;
  const lake = await opened(url, { options: { is_slippery: false } });
  expect([lake.render(), lake.actions]).toEqual(["[S]FFF\nFHFH\nFFFH\nHFFG\n0", ["0", "1", "2", "3"]]);
  // Down, down, right, right, down, right: the shortest way around the holes of the 4 by 4 map.
  const effects = [];
  for (const action of ["1", "1", "2", "2", "1", "2"]) effects.push(await lake.act(action));
  expect(effects.at(-1)).toMatchObject({ reward: 1, done: true, success: true });
  expect(effects.at(-2)).toMatchObject({ reward: 0, done: false, success: false });

  // Equal seeds give equal games; the dynamics seed changes what follows, not the hand.
  const hand = async (dynamics: number) => {
    const game = await opened(url, { env: "Blackjack-v1" }, 7, dynamics);
    const first = game.render();
    await game.act("1");
    return [first, game.render()];
  };
  const hands = await Promise.all([1, 1, 2, 3, 4, 5].map(hand));
  expect(hands[1]).toEqual(hands[0]!);
  expect(new Set(hands.map(([first]) => first)).size).toBe(1);
  expect(new Set(hands.map(([, second]) => second)).size).toBeGreaterThan(1);

  // The random player takes the actions that Taxi's mask allows.
  const taxi = envTag("Remote", { url, env: "Taxi-v4" });
  const { success, meanReward } = await evaluatePlayer(taxi, taxi.random, { episodes: 16, seed: 1, actionsMax: 20 });
  expect([success < 0.5, meanReward < 0]).toEqual([true, true]);
});

const COUNTED = `
import sys
sys.path.insert(0, ${JSON.stringify(join(import.meta.dir, "../../../examples/remote-envs"))})
from types import SimpleNamespace
import gymnasium
from env_server import main
from gymnasium_env import makers

class Counted(gymnasium.Env):
    metadata = {"render_modes": ["ansi"]}
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(100)
    made = opened = 0

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        Counted.made += 1
        Counted.opened += 1

    def reset(self, *, seed=None, options=None):
        return Counted.made, {}

    def render(self):
        return f"{Counted.opened} open"

    def close(self):
        Counted.opened -= 1

gymnasium.register("Counted-v0", Counted)
main(makers(SimpleNamespace(names=["Counted-v0"], actions=None)), "counts")
`;

adapted("gymnasium", "an env is made once for each episode, and once more to see how it draws itself", async () => {
  const script = join(temporaryFolder(), "counted.py");
  writeFileSync(script, COUNTED);
  await using python = await startPython(script);
  expect((await opened(python.url)).render()).toBe("1 open\n2");
  expect((await opened(python.url)).render()).toBe("2 open\n3");
});

adapted("verifiers, reasoning_gym", "an environment of verifiers rolls out with its own rubric", async () => {
  const gym = ["verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv", "--args", '{"gym": "leg_counting"}'];
  await using python = await startPython("verifiers_env.py", [...gym, "--reply", "<answer>{}</answer>"]);
  const game = await opened(python.url);
  expect(game.render()).toEndWith("if you have 15 lobsters, 14 ducks, 8 beetles, 5 fireflys, 9 leechs, 4 snakes?\n");
  // 15 of 10 legs, 14 of 2, 13 of 6, 13 of none.
  expect(await game.act("256")).toMatchObject({ reward: 1, done: true, success: true });
  expect(await (await opened(python.url)).act("255")).toMatchObject({ reward: 0, done: true, success: false });
});

const AGENT = `
import json, sys, threading, urllib.error, urllib.request
sys.path.insert(0, ${JSON.stringify(join(import.meta.dir, "../../../examples/remote-envs"))})
from env_server import main
from openai_agent import AgentEpisode

ADD = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}

def refusals(base_url):
    found = []
    other, large = (base_url.replace("/v1", "x/v1"), b"{}", "2"), (base_url, b"{}", str(1 << 30))
    for url, body, length in (other, large, (base_url, b"{", "1"), (base_url, b"[]", "2"), (base_url, b'{"stream": true}', "16")):
        asked = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Length": length})
        try:
            urllib.request.urlopen(asked)
        except urllib.error.HTTPError as error:
            found.append(error.code)
    return found

def agent(base_url, number):
    if number == 0:
        assert refusals(base_url) == [410, 413, 400, 400, 400], refusals(base_url)
    messages = [{"role": "user", "content": [{"type": "text", "text": f"What is {number} + 1?"}]}]
    while True:
        body = json.dumps({"model": "policy", "messages": messages, "tools": [ADD]}).encode()
        with urllib.request.urlopen(f"{base_url}/chat/completions", body) as answer:
            choice = json.load(answer)["choices"][0]
        message = choice["message"]
        if choice["finish_reason"] == "stop":
            if message["content"] == "fail":
                raise KeyError("no such answer")
            if message["content"] == "exit":
                sys.exit("out of luck")
            if message["content"] == "hang":
                threading.Event().wait()
            if message["content"] == "forget":
                return None
            return {"reward": float(message["content"]), "success": message["content"] == str(number + 1)}
        call = message["tool_calls"][0]
        total = sum(json.loads(call["function"]["arguments"]).values())
        messages = [*messages, message, {"role": "tool", "tool_call_id": call["id"], "content": str(total)}]

class Sum(AgentEpisode):
    def __init__(self, layout_seed, dynamics_seed, options):
        super().__init__(lambda base_url: agent(base_url, layout_seed))

    def step(self, action):
        self.seconds_max = 0.05 if action == "hang" else 600
        return super().step(action)

main({"sum": Sum}, "sums")
`;

test("an agent with an OpenAI client is an env: its calls are observations, tools included", async () => {
  const script = join(temporaryFolder(), "agent.py");
  writeFileSync(script, AGENT);
  // Nothing is at the proxy: the agent's calls go past it.
  await using python = await startPython(script, [], { HTTP_PROXY: "http://127.0.0.1:1" });
  const game = await opened(python.url);
  expect(game.render()).toStartWith('What is 3 + 1?\nTools:\nadd: Adds. {"type": "object"}\nTo call a tool, answer ');
  expect(await game.act('add {"a": 3, "b": 1}')).toMatchObject({ reward: 0, done: false });
  expect(game.render()).toBe("4");
  expect(await game.act("4")).toMatchObject({ reward: 4, done: true, success: true });
  // Another episode beside it; one that is closed early; one whose agent raises.
  const [other, closed, failing] = [
    await opened(python.url, {}, 8),
    await opened(python.url),
    await opened(python.url),
  ];
  await closed.close();
  expect(await failing.act("fail").catch(String)).toContain("KeyError: 'no such answer'");
  const exiting = await opened(python.url, { timeoutMs: 2000, retriesMax: 0 });
  expect(await exiting.act("exit").catch(String)).toContain("RuntimeError: the agent ended by SystemExit: out of luck");
  const forgetting = await opened(python.url);
  expect(await forgetting.act("forget").catch(String)).toContain(
    "TypeError: the agent returned None; return a dict with",
  );
  const hanging = await opened(python.url);
  expect(await hanging.act("hang").catch(String)).toContain("the agent neither asked nor ended in 0.05 s");
  await hanging.close();
  await opened(python.url, {}, 0);
  expect(await other.act("1")).toMatchObject({ reward: 1, done: true, success: false });
});

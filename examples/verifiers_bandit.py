"""Evaluates a served policy of Bandit with verifiers, and prints one JSON line of replies and rewards.

Run: python -m venv ~/vf && ~/vf/bin/pip install verifiers==0.4.0 uv
     PATH=~/vf/bin:$PATH python examples/verifiers_bandit.py http://127.0.0.1:8000/v1 MODEL [EPISODES]

BOARD says how many pulls are left and names the arms. The reward of this script is 1 for the first arm. The environment variable
BUNRAKU_TOKEN holds the server's token.
"""

import asyncio
import json
import sys

import verifiers.v1 as vf

BOARD = "1 left Dragon Phoenix"


def reply_of(trace: vf.Trace) -> str:
    return trace.nodes[-1].message.content or ""


class Pull(vf.Task):
    @vf.reward
    async def first_arm(self, trace: vf.Trace) -> float:
        return float(reply_of(trace).endswith("<answer>Dragon</answer>"))


async def main(url: str, model: str, episodes: str = "8") -> None:
    config = vf.AgentConfig(
        harness={"id": "null"},
        runtime=vf.SubprocessConfig(),
        model=model,
        client=vf.EvalClientConfig(base_url=url, api_key_var="BUNRAKU_TOKEN"),
        sampling={"temperature": 0},
    )
    async with vf.make_agent(config) as agent:
        tasks = [Pull(vf.TaskData(idx=i, prompt=BOARD)) for i in range(int(episodes))]
        traces = await asyncio.gather(*(agent.run(task) for task in tasks))
    played = [{"reply": reply_of(trace), "reward": trace.reward, "errors": [str(error) for error in trace.errors]} for trace in traces]
    print(json.dumps(played))


asyncio.run(main(*sys.argv[1:]))

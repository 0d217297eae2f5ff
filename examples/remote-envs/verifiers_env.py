"""Any environment of the verifiers library (its API load_environment, verifiers 0.1) as a remote env.

    pip install "verifiers==0.1.14" reasoning-gym
    python3 examples/remote-envs/verifiers_env.py verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv --args '{"gym": "leg_counting"}' --reply '<answer>{}</answer>'
    bun run eval --env Remote --policy openai:gpt-4o-mini --episodes 16

The argument names an environment: an installed package with load_environment, or MODULE:CLASS. The layout seed chooses an example of the
environment's data. The environment plays the episode with its own rubric, and its client asks the policy for replies. --reply is the form that
the environment's parser reads, with {} for the policy's answer. A reward of at least --success is a success.
"""

import argparse
import asyncio
import importlib
import json
import os
import threading

from env_server import main
from openai_agent import AgentEpisode

try:
    import verifiers
    from verifiers.types import ClientConfig
except ImportError as missing:
    raise SystemExit(f'{missing}: run `pip install "verifiers==0.1.14"`') from missing

KEY = "BUNRAKU_NO_KEY"  # the client needs the name of an environment variable that holds a key
os.environ[KEY] = "none"


def load(name, args):
    module, _, made = name.partition(":")
    return getattr(importlib.import_module(module), made)(**args) if made else verifiers.load_environment(module, **args)


class Verifiers(AgentEpisode):
    def __init__(self, loop, environment, row, reply, success):
        self.reply = reply

        def play(base_url):
            client = ClientConfig(api_base_url=base_url, api_key_var=KEY, max_retries=0)
            rollout = environment.run_rollout(row, client, "policy", {})
            output = asyncio.run_coroutine_threadsafe(rollout, loop).result()
            if output.get("error") is not None:
                raise RuntimeError(f"the rollout failed: {output['error']}")
            reward = float(output["reward"])
            return {"reward": reward, "success": reward >= success}

        super().__init__(play)

    def step(self, action):
        return super().step(self.reply.replace("{}", action))


def makers(arguments):
    environment = load(arguments.environment, arguments.args)
    rows = environment.get_dataset()
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def maker(layout_seed, dynamics_seed, options):
        row = dict(rows[layout_seed % len(rows)])
        return Verifiers(loop, environment, row, arguments.reply, arguments.success)

    return {arguments.environment: maker}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("environment", help="package with load_environment, or MODULE:CLASS")
    parser.add_argument("--args", type=json.loads, default={}, help="arguments of the environment, as a JSON object")
    parser.add_argument("--reply", default="{}", help="form of a reply, with {} for the policy's answer")
    parser.add_argument("--success", type=float, default=1.0, help="a reward of at least this number is a success")
    main(makers, "Serves an environment of verifiers as a remote env.", parser)

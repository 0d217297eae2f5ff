"""ALFWorld's household tasks as a remote env, for Bunraku's tags Alfworld and AlfworldOOD.

    pip install alfworld && alfworld-download
    python3 examples/remote-envs/alfworld_env.py --port 7110

The layout seed selects a game of the split that the option `split` names. The games are in the order of their paths. A lock serializes all
actions, as in RAGEN: TextWorld's planner is not thread-safe.
"""

import json
import os
import threading

from env_server import main

SPLITS = {"train": "train", "eval_in_distribution": "valid_seen", "eval_out_of_distribution": "valid_unseen"}
STEPS_MAX = 50  # max_nb_steps_per_episode of ALFWorld's base_config.yaml

try:
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredExpert, AlfredInfos
    from alfworld.info import ALFWORLD_DATA
except ImportError as missing:
    raise SystemExit(f"{missing}: run `pip install alfworld`, then `alfworld-download`") from missing

textworld_lock = threading.Lock()
games = {}


def games_of(split):
    """Paths of the split's solvable games. As in ALFWorld, the list lacks games with movable or sliced objects."""
    if split not in games:
        found = []
        root = os.path.join(ALFWORLD_DATA, "json_2.1.1", SPLITS[split])
        for folder, _, files in os.walk(root):
            path = os.path.join(folder, "game.tw-pddl")
            if "game.tw-pddl" not in files or "movable" in folder or "Sliced" in folder:
                continue
            with open(path) as file:
                if json.load(file).get("solvable"):
                    found.append(path)
        if not found:
            raise RuntimeError(f"no games in {root}: run `alfworld-download`, or set ALFWORLD_DATA")
        games[split] = sorted(found)
    return games[split]


class Alfworld:
    def __init__(self, layout_seed, dynamics_seed, options):
        with textworld_lock:
            paths = games_of(options.get("split", "train"))
            infos = textworld.EnvInfos(won=True, admissible_commands=True, facts=True, feedback=True, extras=["gamefile"])
            wrappers = [AlfredDemangler(), AlfredInfos()]
            if options.get("expert"):
                wrappers.append(AlfredExpert())
            self.env = textworld.start(paths[layout_seed % len(paths)], infos, wrappers)
            self.state = self.env.reset()
        self.steps = 0

    @property
    def observation(self):
        return self.state["feedback"]

    @property
    def admissible(self):
        return list(self.state["admissible_commands"])

    def expert(self):
        plan = self.state.get("extra.expert_plan")
        return plan[0] if plan else None

    def step(self, action):
        with textworld_lock:
            self.state, _, done = self.env.step(action)
        self.steps += 1
        won = bool(self.state["won"])
        return {"reward": float(won), "done": bool(done) or self.steps >= STEPS_MAX, "success": won}

    def close(self):
        with textworld_lock:
            self.env.close()


if __name__ == "__main__":
    main({"alfworld": Alfworld}, "ALFWorld as a remote env.")

"""Any Gymnasium env with discrete or text actions as a remote env.

    pip install "gymnasium[toy-text]"
    python3 examples/remote-envs/gymnasium_env.py FrozenLake-v1 Taxi-v4 Blackjack-v1
    bun run eval --env Remote --env.options.env=Taxi-v4 --policy random

Options of the env go into the tag's option `options`: --env.options.options.is_slippery=false. An observation is the value that the env
returns. If the env has the render mode ansi, the env's picture in text comes before the value, with colored letters in brackets. An action is
a number, or with --actions Left,Down,Right,Up a name. An episode that the env itself ends with a positive reward is a success.
"""

import argparse
import re

from env_server import main

try:
    import gymnasium
    import numpy
except ImportError as missing:
    raise SystemExit(f'{missing}: run `pip install "gymnasium[toy-text]"`') from missing

draws_text = {}  # for each env's name: whether the env has the render mode ansi
COLORED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0m", re.DOTALL)


class Gymnasium:
    """The layout seed decides the board. The dynamics seed decides all later random events."""

    def __init__(self, name, names, seeds, options):
        if name not in draws_text:
            probe = gymnasium.make(name, **options)
            draws_text[name] = "ansi" in probe.metadata.get("render_modes", [])
            probe.close()
        self.env = gymnasium.make(name, **({"render_mode": "ansi"} if draws_text[name] else {}), **options)
        space = self.env.action_space
        self.takes_text = isinstance(space, gymnasium.spaces.Text)
        if not self.takes_text and not isinstance(space, gymnasium.spaces.Discrete):
            raise ValueError(f"{name} has actions of {space}; only Discrete and Text are played")
        self.first = 0 if self.takes_text else int(space.start)
        self.actions = None if self.takes_text else names or [str(self.first + i) for i in range(int(space.n))]
        if not self.takes_text and len(self.actions) != space.n:
            raise ValueError(f"{name} has {space.n} actions, and --actions names {len(self.actions)}")
        self.value, self.info = self.env.reset(seed=seeds[0])
        self.env.unwrapped.np_random = numpy.random.default_rng(seeds[1])

    @property
    def observation(self):
        drawn = self.env.render() if self.env.render_mode == "ansi" else None
        picture = "" if drawn is None else COLORED.sub(r"[\1]", drawn).strip("\n") + "\n"
        return f"{picture}{plain(self.value)}"

    @property
    def admissible(self):
        mask = self.info.get("action_mask")
        return self.actions if mask is None else [name for name, allowed in zip(self.actions, mask) if allowed]

    def step(self, action):
        played = action if self.takes_text else self.first + self.actions.index(action)
        self.value, reward, ended, cut, self.info = self.env.step(played)
        return {"reward": float(reward), "done": bool(ended or cut), "success": bool(ended and reward > 0)}

    def close(self):
        self.env.close()


def plain(value):
    """A value without the types of numpy."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(plain(part) for part in value)
    return value.tolist() if isinstance(value, (numpy.ndarray, numpy.generic)) else value


def makers(arguments):
    unknown = [name for name in arguments.names if name not in gymnasium.registry]
    if unknown:
        raise SystemExit(f"Gymnasium has no env named {unknown[0]}")

    def maker(name):
        return lambda layout, dynamics, options: Gymnasium(name, arguments.actions, (layout, dynamics), options)

    return {name: maker(name) for name in arguments.names}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", metavar="NAME", help="names in Gymnasium's registry: FrozenLake-v1")
    parser.add_argument("--actions", type=lambda text: text.split(","), help="names of the actions: Left,Down,Right,Up")
    main(makers, "Serves envs of Gymnasium as remote envs.", parser)

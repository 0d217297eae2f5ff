"""An env in Python: guess a number from 1 to 20 in few guesses. Run: python3 examples/remote-envs/guess.py"""

import random
import time

from env_server import main

HIGHEST = 20


class Guess:
    def __init__(self, layout_seed, dynamics_seed, options):
        self.highest = options.get("highest", HIGHEST)
        self.number = random.Random(layout_seed).randint(1, self.highest)
        self.low, self.high = 1, self.highest
        # The option step_seconds makes each step slow, as a browser or a compiler would be. Boards with seeds below slow_from_seed stay
        # fast.
        is_slow = layout_seed >= options.get("slow_from_seed", 0)
        self.seconds = options.get("step_seconds", 0) if is_slow else 0
        self.observation = f"I think of a number from 1 to {self.highest}."

    @property
    def admissible(self):
        return [str(number) for number in range(1, self.highest + 1)]

    def expert(self):
        return str((self.low + self.high) // 2)

    def step(self, action):
        time.sleep(self.seconds)
        try:
            guess = int(action)
        except ValueError:
            self.observation = f"{action!r} is no number."
            return {"reward": -1, "done": False, "success": False, "valid": False, "effective": False}
        if guess == self.number:
            self.observation = f"{guess} it is."
            return {"reward": 10, "done": True, "success": True}
        informative = self.low <= guess <= self.high
        if guess < self.number:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        self.observation = f"{guess} is too {'small' if guess < self.number else 'large'}."
        return {"reward": -1, "done": False, "success": False, "effective": informative}


if __name__ == "__main__":
    main({"guess": Guess}, "Guess a number, as a remote env.")

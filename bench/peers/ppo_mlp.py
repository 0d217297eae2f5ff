"""PPO with a small MLP on SimpleSokoban: what a plain agent outside Bunraku learns from a given number of episodes, without imitation.

Run: bun bench/peers/boards.ts > boards.json
     python bench/peers/ppo_mlp.py --boards boards.json --seeds 1 2 3 4 5
The boards, rewards and the budget of 10 actions are those of the default run. The agent sees the cells, one-hot, and the number of actions
left, and takes one action per observation. Prints one JSON line per seed: validation success after each count of --episodes, greedy and sampled.
"""

import argparse
import json

import numpy as np
import torch
from torch import nn

SYMBOLS = "#_OX√PS"
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
ACTIONS_MAX = 10


class Boards:
    """Boards of one box, in parallel. A board is its walls and three cells: player, box, target."""

    def __init__(self, texts: list[str]):
        grids = np.array([[list(row) for row in text.split("\n")] for text in texts])
        count = len(texts)
        self.walls = grids == "#"
        self.players = np.argwhere((grids == "P") | (grids == "S"))[:, 1:].reshape(count, 2)
        self.boxes = np.argwhere((grids == "X") | (grids == "√"))[:, 1:].reshape(count, 2)
        self.targets = np.argwhere((grids == "O") | (grids == "S") | (grids == "√"))[:, 1:].reshape(count, 2)

    def __len__(self) -> int:
        return len(self.walls)


class Play:
    """One episode on each of the chosen boards."""

    def __init__(self, boards: Boards, chosen: np.ndarray):
        self.walls = boards.walls[chosen]
        self.player = boards.players[chosen].copy()
        self.box = boards.boxes[chosen].copy()
        self.target = boards.targets[chosen]
        self.left = ACTIONS_MAX
        self.done = np.zeros(len(chosen), bool)

    def observe(self) -> np.ndarray:
        count, height, width = self.walls.shape
        planes = np.zeros((count, 4, height, width), np.float32)
        rows = np.arange(count)
        planes[:, 0] = self.walls
        for plane, place in ((1, self.player), (2, self.box), (3, self.target)):
            planes[rows, plane, place[:, 0], place[:, 1]] = 1
        left = np.full((count, 1), self.left / ACTIONS_MAX, np.float32)
        return np.concatenate([planes.reshape(count, -1), left], 1)

    def act(self, actions: np.ndarray) -> np.ndarray:
        """Moves and pushes. Returns rewards: -.1 an action, +1 for a box that reaches its target, +10 for a solved board."""
        rows = np.arange(len(actions))
        step = MOVES[actions]
        to = self.player + step
        pushes = (to == self.box).all(1)
        behind = np.where(pushes[:, None], self.box + step, to)
        free = ~self.walls[rows, to[:, 0], to[:, 1]]
        free &= ~self.walls[rows, behind[:, 0].clip(0, 5), behind[:, 1].clip(0, 5)] & ~self.done
        self.player = np.where(free[:, None], to, self.player)
        self.box = np.where((free & pushes)[:, None], behind, self.box)
        solved = (self.box == self.target).all(1) & ~self.done
        rewards = np.where(self.done, 0, -0.1 + 11.0 * solved).astype(np.float32)
        self.done |= solved
        self.left -= 1
        return rewards


def layers(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs))


@torch.no_grad()
def success(actor: nn.Module, boards: Boards, greedy: bool) -> float:
    play = Play(boards, np.arange(len(boards)))
    for _ in range(ACTIONS_MAX):
        logits = actor(torch.from_numpy(play.observe()))
        drawn = logits.argmax(1) if greedy else torch.distributions.Categorical(logits=logits).sample()
        play.act(drawn.numpy())
    return float(play.done.mean())


def train(seed: int, training: Boards, validation: Boards, options: argparse.Namespace) -> dict:
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    inputs = Play(validation, np.arange(1)).observe().shape[1]
    actor, critic = layers(inputs, 4), layers(inputs, 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=options.learning_rate)
    results = {}
    episodes = 0
    for wanted in options.episodes:
        while episodes < wanted:
            play = Play(training, random.integers(len(training), size=options.batch))
            seen, acted, log_probs, rewards, values, alive = [], [], [], [], [], []
            for _ in range(ACTIONS_MAX):
                observation = torch.from_numpy(play.observe())
                alive.append(torch.from_numpy(~play.done))
                with torch.no_grad():
                    policy = torch.distributions.Categorical(logits=actor(observation))
                    action = policy.sample()
                    values.append(critic(observation)[:, 0])
                seen.append(observation)
                acted.append(action)
                log_probs.append(policy.log_prob(action))
                rewards.append(torch.from_numpy(play.act(action.numpy())))
            advantages_by_step = [torch.zeros(options.batch)] * ACTIONS_MAX
            gae, after = torch.zeros(options.batch), torch.zeros(options.batch)
            for t in reversed(range(ACTIONS_MAX)):
                ongoing = (alive[t + 1] if t + 1 < ACTIONS_MAX else torch.zeros(options.batch)).float()
                error = rewards[t] + ongoing * after - values[t]
                gae = error + 0.95 * ongoing * gae
                advantages_by_step[t] = gae
                after = values[t]
            mask = torch.cat(alive)
            flat = lambda parts: torch.cat(parts)[mask]  # noqa: E731
            states, actions, old, advantages, known = map(flat, (seen, acted, log_probs, advantages_by_step, values))
            returns = advantages + known
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            for _ in range(4):
                for chosen in torch.randperm(len(states)).split(256):
                    policy = torch.distributions.Categorical(logits=actor(states[chosen]))
                    ratio = (policy.log_prob(actions[chosen]) - old[chosen]).exp()
                    advantage = advantages[chosen]
                    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                    value_loss = (critic(states[chosen])[:, 0] - returns[chosen]).square().mean()
                    loss = -surrogate + 0.5 * value_loss - options.entropy * policy.entropy().mean()
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(parameters, 0.5)
                    optimizer.step()
            episodes += options.batch
        results[episodes] = {"greedy": success(actor, validation, True), "sampled": success(actor, validation, False)}
    return results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--boards", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--episodes", type=int, nargs="+", default=[12_800, 128_000, 1_280_000])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--entropy", type=float, default=0.01)
    parser.add_argument("--validate", default="validation", help="boards for the success: validation, or choosing (to choose settings)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = json.load(open(options.boards))
    for seed in options.seeds:
        results = train(seed, Boards(texts["training"]), Boards(texts[options.validate]), options)
        print(json.dumps({"seed": seed, "success": results}), flush=True)


if __name__ == "__main__":
    main()

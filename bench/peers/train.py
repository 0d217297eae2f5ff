"""The training loop that a user would write with PyTorch and transformers: Dr. GRPO on SimpleSokoban in several turns.

Run: bun bench/peers/boards.ts > boards.json
     bun run export --policy RUN --to hf --out policy
     python bench/peers/train.py --policy policy --boards boards.json [--seed 1 --updates 60 --groups 16 --group-size 8 …]
`bun run bench run` runs these commands, and trains in Bunraku from the same weights. Prompts, rewards, filter, loss and optimizer are
those of Bunraku's run; the training boards are others of the same kind. The loop computes in its own way: one call of `generate` a
turn writes the replies of all live episodes, and the gradient is computed on padded rows, in micro-batches.

Prints one JSON line: {"name", "torch", "transformers", "threads", "seconds": of updates and both validations, "rolloutSeconds",
"before", "after": success on the validation boards at temperature .5}.
"""

import argparse
import json
import re
import time

import numpy as np
import torch
import transformers
from ppo_mlp import MOVES, Boards
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

TURNS_MAX, ACTIONS_MAX, ACTIONS_PER_TURN_MAX, REPLY_TOKENS_MAX = 5, 10, 5, 24
FORMAT_PENALTY = -0.1
# Every reply begins with this text, which the policy does not write.
PREFIX = "<think>"
NAMES = ["up", "down", "left", "right"]
REPLY = re.compile(r"<think>(.*?)</think>\s*<answer>(.*?)</answer>", re.DOTALL)


def rounding():
    return torch.autocast("cpu", torch.bfloat16, enabled=options.bfloat16)


class Game:
    """One episode: the board, and the tokens of its dialogue."""

    def __init__(self, boards: Boards, index: int):
        self.walls = boards.walls[index]
        self.player, self.box, self.target = (tuple(b[index]) for b in (boards.players, boards.boxes, boards.targets))
        self.left, self.turns, self.reward, self.penalty, self.done, self.success = ACTIONS_MAX, 0, 0.0, 0.0, False, False
        self.tokens: list[int] = []
        self.written: list[int] = []

    def prompt(self) -> str:
        cells = np.where(self.walls, "#", "_")
        cells[self.target] = "O"
        cells[self.box] = "√" if self.box == self.target else "X"
        cells[self.player] = "S" if self.player == self.target else "P"
        return f"{self.left} left {''.join(''.join(row[1:-1]) for row in cells[1:-1])}"

    def act(self, reply: str) -> None:
        """Plays the reply's actions. Rewards: -.1 an action, +1 for a box that reaches its target, +10 for a solved board."""
        found = REPLY.search(reply)
        parts = [part.strip().lower() for part in found[2].split("||")] if found else []
        names = [part for part in parts if part][:ACTIONS_PER_TURN_MAX]
        actions = [NAMES.index(name) for name in names if name in NAMES]
        if found is None or not actions or len(actions) < len(names):
            self.penalty += FORMAT_PENALTY
        for action in actions[: self.left]:
            self.left -= 1
            to = tuple(np.add(self.player, MOVES[action]))
            behind = tuple(np.add(self.box, MOVES[action])) if to == self.box else to
            if not self.walls[to] and not self.walls[behind]:
                self.player = to
                if to == self.box:
                    self.box = behind
            self.success = self.box == self.target
            self.reward += -0.1 + 11.0 * self.success
            if self.success:
                break
        self.turns += 1
        self.done = self.success or self.left == 0 or self.turns == TURNS_MAX


@torch.no_grad()
def play(model, tokenizer, games: list[Game], temperature: float) -> None:
    model.eval()
    while live := [game for game in games if not game.done]:
        for game in live:
            message = [{"role": "user", "content": game.prompt()}]
            cut = len(game.tokens) > 0 and game.tokens[-1] != tokenizer.eos_token_id
            text = tokenizer.eos_token * cut + tokenizer.apply_chat_template(message, tokenize=False) + PREFIX
            new = tokenizer.encode(text, add_special_tokens=False)
            game.tokens += new
            game.written += [0] * len(new)
        batch = tokenizer.pad({"input_ids": [game.tokens for game in live]}, padding_side="left", return_tensors="pt")
        with rounding():
            whole = model.generate(
                **batch, do_sample=True, temperature=temperature, top_k=0, top_p=1.0, max_new_tokens=REPLY_TOKENS_MAX
            )
        for game, row in zip(live, whole[:, batch["input_ids"].shape[1] :].tolist()):
            end = row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
            game.tokens += row[:end]
            game.written += [1] * end
            game.act(PREFIX + tokenizer.decode(row[:end], skip_special_tokens=True))


def kept_groups(rewards: np.ndarray, share: float) -> np.ndarray:
    """rewards (groups, episodes). Returns the groups whose rewards differ most."""
    return np.argsort(-rewards.std(1, ddof=1), kind="stable")[: max(1, int(share * len(rewards)))]


def learn(model, optimizer, games: list[Game], advantages: np.ndarray, options: argparse.Namespace) -> None:
    """One step of Dr. GRPO on episodes that this policy played. The ratio is 1, so clipping changes nothing."""
    model.train()
    divisor = len(games) * TURNS_MAX * REPLY_TOKENS_MAX
    for start in range(0, len(games), options.micro_batch):
        some = games[start : start + options.micro_batch]
        tokens = pad_sequence([torch.tensor(game.tokens) for game in some], batch_first=True)
        written = pad_sequence([torch.tensor(game.written) for game in some], batch_first=True)
        seen = pad_sequence([torch.ones(len(game.tokens), dtype=torch.long) for game in some], batch_first=True)
        with rounding():
            logits = model(input_ids=tokens, attention_mask=seen).logits[:, :-1]
        log_probs = logits.float().log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
        weights = torch.tensor(advantages[start : start + options.micro_batch], dtype=torch.float32)[:, None] * written[:, 1:]
        loss = -(weights * torch.exp(log_probs - log_probs.detach())).sum() / divisor
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def success(model, tokenizer, boards: Boards) -> float:
    games = [Game(boards, index) for index in range(len(boards))]
    play(model, tokenizer, games, 0.5)
    return float(np.mean([game.success for game in games]))


parser = argparse.ArgumentParser()
parser.add_argument("--policy", required=True)
parser.add_argument("--boards", required=True)
for name, default in {"seed": 1, "updates": 60, "groups": 16, "group-size": 8, "micro-batch": 32, "threads": 2}.items():
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--learning-rate", type=float, default=1e-4)
parser.add_argument("--bfloat16", action="store_true", help="autocast rounds the factors of products to bfloat16")
parser.add_argument("--kept", type=float, default=0.5, help="share of the groups that the filter keeps")
options = parser.parse_args()

transformers.logging.set_verbosity_error()
torch.set_num_threads(options.threads)
transformers.set_seed(options.seed)
tokenizer = AutoTokenizer.from_pretrained(options.policy)
model = AutoModelForCausalLM.from_pretrained(options.policy, dtype=torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, betas=(0.9, 0.99), eps=1e-8, weight_decay=0)
with open(options.boards) as file:
    texts = json.load(file)
training, validation = Boards(texts["training"]), Boards(texts["validation"])
order = np.random.default_rng(options.seed).permutation(len(training))

started = time.perf_counter()
before = success(model, tokenizer, validation)
rollout_seconds = 0.0
for update in range(options.updates):
    began = time.perf_counter()
    chosen = order[update * options.groups : (update + 1) * options.groups]
    games = [Game(training, index) for index in chosen for _ in range(options.group_size)]
    play(model, tokenizer, games, 1.0)
    rollout_seconds += time.perf_counter() - began
    rewards = np.array([game.reward for game in games]).reshape(options.groups, options.group_size)
    kept = kept_groups(rewards, options.kept)
    scores = rewards + np.array([game.penalty for game in games]).reshape(rewards.shape)
    advantages = (scores - scores.mean(1, keepdims=True))[kept].reshape(-1)
    learn(model, optimizer, [games[g * options.group_size + i] for g in kept for i in range(options.group_size)], advantages, options)
after = success(model, tokenizer, validation)
seconds = time.perf_counter() - started
print(
    json.dumps(
        {
            "name": "train",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "threads": options.threads,
            "seconds": seconds,
            "rolloutSeconds": rollout_seconds,
            "before": before,
            "after": after,
        }
    )
)

"""PyTorch's time for the reference training step, and its first losses to compare ours to.

Run: python bench/peers/step.py [--weights FILE --data FILE] [--d 128 --layers 4 …]    (see README.md)

The step: a Qwen2-architecture decoder in float32; loss = -mean(advantage * log-probability) over every token but the first of
each sequence; backward; clip the global norm to 1; AdamW (betas 0.9 and 0.99, eps 1e-8, weight decay 0.01 on every parameter).
The same batch every step. Variants take turns, a few steps at a time, so that a busy moment of the machine hits all of them.

Prints one JSON line: {"name", "torch", "threads", "parameters", "config", "steps",
"ms": {variant: median}, "losses": {variant: of the first 3 steps}, "gradNorms": {variant: before clipping, the same 3}}.

Files are safetensors. --weights: Hugging Face's Qwen2 names, an own head. --data: tokens (B,T) as whole numbers in float32,
advantages (B,T), of which column 0 is not used. Without them both come from --seed; --save DIR writes them there, as
weights.safetensors and data.safetensors.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from qwen2 import Config, Qwen2, attend_fused, attend_naively, rope_tables, token_log_probs
from safetensors.torch import load_file, save_file

VARIANTS = {
    "eager": (attend_naively, False),
    "eagerSdpa": (attend_fused, False),
    "compiledSdpa": (attend_fused, True),
}
STEPS_PER_TURN = 3
CLIP_NORM = 1.0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PyTorch's time for the reference training step")
    add_model_options(parser)
    parser.add_argument("--batch", type=int, default=16, help="B")
    parser.add_argument("--seq", type=int, default=256, help="T")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=18, help="measured steps of each variant")
    parser.add_argument("--warm-up", type=int, default=4, help="steps of each variant before, at least 3")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="some of " + ", ".join(VARIANTS))
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    unknown = set(options.variants.split(",")) - VARIANTS.keys()
    if unknown:
        parser.error(f"unknown variants {', '.join(sorted(unknown))}; known: {', '.join(VARIANTS)}")
    if options.warm_up < 3:
        parser.error(f"--warm-up must be at least 3, for their losses are printed; got {options.warm_up}")
    return options


def add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--d", type=int, default=128, help="width")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=None, help="default: as --heads")
    parser.add_argument("--hidden", type=int, default=None, help="of the SwiGLU; default: 2.75 d")
    parser.add_argument("--vocab", type=int, default=256, help="V")
    parser.add_argument("--seed", type=int, default=0)


def model_config(options: argparse.Namespace) -> Config:
    return Config(
        vocab_size=options.vocab,
        hidden_size=options.d,
        intermediate_size=options.hidden or options.d * 11 // 4,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads or options.heads,
    )


def random_weights(config: Config, seed: int) -> dict[str, torch.Tensor]:
    """As Hugging Face initialises: normal of 0.02, biases 0, norms 1."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, p in Qwen2(config).named_parameters():
        if name.endswith("bias"):
            weights[name] = torch.zeros_like(p.data)
        else:
            weights[name] = torch.ones_like(p.data) if p.ndim == 1 else 0.02 * torch.randn(p.shape, generator=generator)
    return weights


def random_data(config: Config, batch: int, seq: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed + 1)
    tokens = torch.randint(0, config.vocab_size, (batch, seq), generator=generator)
    return {"tokens": tokens.float(), "advantages": torch.randn(batch, seq, generator=generator)}


class Run:
    """One variant, with weights and optimiser of its own."""

    def __init__(self, variant: str, config: Config, weights: dict, data: dict, lr: float):
        attend, compiled = VARIANTS[variant]
        self.model = Qwen2(config, attend)
        self.model.load_state_dict(weights)
        self.tokens = data["tokens"].long()
        self.advantages = data["advantages"][:, 1:].contiguous()
        self.rope = rope_tables(config, torch.arange(self.tokens.shape[1]), torch.float32)
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=lr, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01, fused=True
        )
        self.loss = torch.compile(self.eager_loss) if compiled else self.eager_loss
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.times_ms: list[float] = []

    def eager_loss(self, tokens: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
        return -(advantages * token_log_probs(self.model(tokens, *self.rope), tokens)).mean()

    def step(self) -> None:
        start = time.perf_counter()
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(self.tokens, self.advantages)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimiser.step()
        self.losses.append(loss.item())
        self.norms.append(norm.item())
        self.times_ms.append((time.perf_counter() - start) * 1000)


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    config = model_config(options)
    weights = load_file(options.weights) if options.weights else random_weights(config, options.seed)
    data = load_file(options.data) if options.data else random_data(config, options.batch, options.seq, options.seed)
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        save_file(weights, options.save / "weights.safetensors")
        save_file(data, options.save / "data.safetensors")

    runs = {variant: Run(variant, config, weights, data, options.lr) for variant in options.variants.split(",")}
    for run in runs.values():
        for _ in range(options.warm_up):
            run.step()
    measured = 0
    while measured < options.steps:
        count = min(STEPS_PER_TURN, options.steps - measured)
        for run in runs.values():
            for _ in range(count):
                run.step()
        measured += count

    b, t = data["tokens"].shape
    report = {
        "name": "step",
        "torch": torch.__version__,
        "threads": options.threads,
        "parameters": sum(w.numel() for w in weights.values()),
        "config": {**config.__dict__, "batch": b, "seq": t, "lr": options.lr},
        "steps": options.steps,
        "ms": {variant: round(statistics.median(run.times_ms[options.warm_up :]), 2) for variant, run in runs.items()},
        "losses": {variant: run.losses[:3] for variant, run in runs.items()},
        "gradNorms": {variant: run.norms[:3] for variant, run in runs.items()},
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

"""PyTorch's time for the reference training step, and its first losses, which Bunraku's must equal.

Run: python bench/peers/step.py [--weights FILE --data FILE] [--d 128 --layers 4 …]    (see README.md)

The step: a Qwen2-architecture decoder in float32; loss = -mean(advantage * log-probability) over every token but the first of
each sequence; backward; clip the global norm to 1; AdamW (betas 0.9 and 0.99, eps 1e-8, weight decay 0.01 on every parameter).
Every step has the same batch. Variants take turns, a few steps at a time, so that a busy moment of the machine slows all of them.

Prints one JSON line: {"name", "torch", "threads", "device", "parameters", "config", "steps",
"ms": {variant: median}, "losses": {variant: of the first 3 steps}, "peakBytes",
"productsMs": the step's matrix products alone, one after another, at their own shapes; median; null with adapters}.

Files are safetensors. --weights: Hugging Face's Qwen2 names, with a separate head. --data: tokens (B,T) as whole numbers in float32,
advantages (B,T), of which column 0 is not used. Without these files, weights and data come from --seed; --save DIR writes them as
DIR/weights.safetensors and DIR/data.safetensors. With --rank R the head is the embedding, and only adapters are trained: one
(B · A, its factor alpha / R is 1) beside each matrix of a layer, under peft's names.
"""

import argparse
import json
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch
from qwen2 import Config, Qwen2, attend_fused, attend_naively, rope_tables, token_log_probs
from safetensors.torch import load_file, save_file
from torch import nn

# Attention, whether torch.compile compiles the loss, and whether autocast rounds the factors of products to bfloat16.
VARIANTS = {
    "eager": (attend_naively, False, False),
    "eagerSdpa": (attend_fused, False, False),
    "compiledSdpa": (attend_fused, True, False),
    "bfloat16Sdpa": (attend_fused, False, True),
    "compiledBfloat16Sdpa": (attend_fused, True, True),
}
FLOAT32 = [name for name, (_, _, rounds) in VARIANTS.items() if not rounds]
STEPS_PER_TURN = 3
CLIP_NORM = 1.0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PyTorch's time for the reference training step")
    add_model_options(parser)
    parser.add_argument("--batch", type=int, default=16, help="B")
    parser.add_argument("--seq", type=int, default=256, help="T")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=18, help="measured steps of each variant")
    parser.add_argument("--warm-up", type=int, default=4, help="unmeasured steps of each variant before the measured ones; at least 3")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variants", default=",".join(FLOAT32), help="some of " + ", ".join(VARIANTS))
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--rank", type=int, default=0, help="rank of the adapters, which need --weights; 0: no adapters, all parameters are trained")
    options = parser.parse_args()
    unknown = set(options.variants.split(",")) - VARIANTS.keys()
    if unknown:
        parser.error(f"unknown variants {', '.join(sorted(unknown))}; known: {', '.join(VARIANTS)}")
    if options.warm_up < 3:
        parser.error(f"--warm-up must be at least 3, because the losses of the first 3 are printed; got {options.warm_up}")
    return options


def add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--d", type=int, default=128, help="width")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=None, help="default: as --heads")
    parser.add_argument("--hidden", type=int, default=None, help="width of the SwiGLU; default: 2.75 d")
    parser.add_argument("--vocab", type=int, default=256, help="V")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")


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
    """Hugging Face's initial values: matrices normal with standard deviation 0.02, biases 0, norms 1."""
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


class Adapted(nn.Linear):
    """A frozen matrix with an adapter beside it."""

    def __init__(self, frozen: nn.Linear, rank: int):
        super().__init__(frozen.in_features, frozen.out_features, bias=frozen.bias is not None)
        self.lora_A = nn.Linear(frozen.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, frozen.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.lora_B(self.lora_A(x))


def adapt(model: Qwen2, rank: int) -> None:
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, module in list(part.named_children()):
                setattr(part, name, Adapted(module, rank))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lora_" in name


class Run:
    """One variant, with weights and optimizer of its own."""

    def __init__(self, variant: str, config: Config, weights: dict, data: dict, options: argparse.Namespace):
        attend, compiled, rounds = VARIANTS[variant]
        self.model = Qwen2(config, attend)
        if options.rank > 0:
            adapt(self.model, options.rank)
            weights = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}
        self.model.load_state_dict(weights)
        self.model.to(options.device)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.tokens = data["tokens"].long().to(options.device)
        self.advantages = data["advantages"][:, 1:].contiguous().to(options.device)
        rope = rope_tables(config, torch.arange(self.tokens.shape[1]), torch.float32)
        self.rope = tuple(table.to(options.device) for table in rope)
        self.optimizer = torch.optim.AdamW(
            trained, lr=options.lr, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01, fused=True
        )
        self.loss = torch.compile(self.eager_loss) if compiled else self.eager_loss
        self.device_type = torch.device(options.device).type
        self.rounds = rounds
        self.losses: list[float] = []
        self.times_ms: list[float] = []

    def eager_loss(self, tokens: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
        return -(advantages * token_log_probs(self.model(tokens, *self.rope), tokens)).mean()

    def step(self) -> None:
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device_type, torch.bfloat16, enabled=self.rounds):
            loss = self.loss(self.tokens, self.advantages)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        self.losses.append(loss.item())
        self.times_ms.append((time.perf_counter() - start) * 1000)


def products_ms(config: Config, batch: int, seq: int, device: str, rounds: int = 7) -> float:
    """Times each product of the forward pass and its two products of the backward pass; no embedding, rotation, norms, softmax or loss."""
    head = config.hidden_size // config.num_attention_heads
    rows, d, kv = batch * seq, config.hidden_size, config.num_key_value_heads * head
    hidden = config.intermediate_size
    per_layer = [(d, d), (d, kv), (d, kv), (d, d), (d, hidden), (d, hidden), (hidden, d)]
    # (count, batch, n, k, m): `count` products of (batch, n, k) and (batch, k, m).
    matrices = [(config.num_hidden_layers, 1, rows, k, m) for k, m in per_layer] + [(1, 1, rows, d, config.vocab_size)]
    heads = batch * config.num_attention_heads
    attention = [(config.num_hidden_layers, heads, seq, head, seq), (config.num_hidden_layers, heads, seq, seq, head)]
    pairs = []
    for count, b, n, k, m in matrices + attention:
        x, w, dy = (torch.randn(shape, device=device) for shape in [(b, n, k), (b, k, m), (b, n, m)])
        forms = [(x, w), (dy, w.transpose(1, 2)), (x.transpose(1, 2), dy)]
        pairs += [(left.squeeze(0), right.squeeze(0)) for left, right in forms] * count
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for left, right in pairs:
            left @ right
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def peak_bytes(device: str) -> int:
    """Peak memory: of the GPU with cuda, else of the process."""
    return torch.cuda.max_memory_reserved() if device == "cuda" else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    options = parse_options()
    torch.set_num_threads(options.threads)
    config = replace(model_config(options), tie_word_embeddings=options.rank > 0)
    weights = load_file(options.weights) if options.weights else random_weights(config, options.seed)
    data = load_file(options.data) if options.data else random_data(config, options.batch, options.seq, options.seed)
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        save_file(weights, options.save / "weights.safetensors")
        save_file(data, options.save / "data.safetensors")

    runs = {variant: Run(variant, config, weights, data, options) for variant in options.variants.split(",")}
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
    peak = peak_bytes(options.device)
    report = {
        "name": "step",
        "torch": torch.__version__,
        "threads": options.threads,
        "device": options.device,
        "parameters": sum(w.numel() for w in weights.values()),
        "config": {**config.__dict__, "batch": b, "seq": t, "lr": options.lr},
        "steps": options.steps,
        "ms": {variant: round(statistics.median(run.times_ms[options.warm_up :]), 2) for variant, run in runs.items()},
        "losses": {variant: run.losses[:3] for variant, run in runs.items()},
        "peakBytes": peak,
        # With adapters, the frozen matrices have no gradient, so the step has fewer products.
        "productsMs": None if options.rank > 0 else round(products_ms(config, b, t, options.device), 2),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

"""PyTorch's tokens a second when it decodes a batch with a KV cache: a hand-written loop, and Hugging Face's generate.

Run: python bench/peers/decode.py [--batch 64 --tokens 256 --prompt 16 --threads 1 …]    (see README.md)

The model of step.py, float32, random weights, no stop token, sampled at temperature 1 (--greedy: the likeliest token).
  loop      keys and values written into arrays made once; attention (SDPA) reads the part that is filled
  generate  transformers' model.generate with its SDPA attention and its growing cache

The measured time includes the forward pass of the prompt, which a turn of an episode needs too. The speed is the
median of --rounds rounds, after one round to warm up. With --greedy both must give the same tokens; otherwise the program exits 1.

Prints one JSON line: {"name", "torch", "transformers", "threads", "device", "config", "tokensPerSecond": {"loop", "generate"}}.
"""

import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import transformers
from qwen2 import Config, Qwen2, rope_tables, rotate
from step import add_model_options, model_config, random_weights
from torch import Tensor


class Cache:
    """Keys and values, (layers, B, K, S, C) each, for S positions. Positions below `filled` are valid."""

    def __init__(self, config: Config, batch: int, positions: int, device: torch.device):
        shape = (config.num_hidden_layers, batch, config.num_key_value_heads, positions, config.head_dim)
        self.keys, self.values = torch.zeros(shape, device=device), torch.zeros(shape, device=device)
        self.cos, self.sin = (t.to(device) for t in rope_tables(config, torch.arange(positions), torch.float32))
        self.filled = 0


def advance(model: Qwen2, cache: Cache, tokens: Tensor) -> Tensor:
    """Feed (B, T) tokens after what is cached. Returns the last position's logits (B, V)."""
    start, end = cache.filled, cache.filled + tokens.shape[1]
    cos, sin = cache.cos[start:end], cache.sin[start:end]
    x = model.model.embed_tokens(tokens)
    for index, layer in enumerate(model.model.layers):
        attention = layer.self_attn
        q, k, v = attention.project(layer.input_layernorm(x), cos, sin)
        cache.keys[index, :, :, start:end] = k
        cache.values[index, :, :, start:end] = v
        seen = (attention.spread(c[index, :, :, :end]) for c in (cache.keys, cache.values))
        mixed = F.scaled_dot_product_attention(q, *seen, is_causal=tokens.shape[1] > 1)
        x = x + attention.o_proj(mixed.transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    cache.filled = end
    return model.lm_head(model.model.norm(x[:, -1]))


def decode(model: Qwen2, prompt: Tensor, count: int, greedy: bool) -> Tensor:
    cache = Cache(model.config, prompt.shape[0], prompt.shape[1] + count, prompt.device)
    fed, written = prompt, []
    for _ in range(count):
        logits = advance(model, cache, fed)
        fed = logits.argmax(-1, keepdim=True) if greedy else torch.multinomial(logits.softmax(-1), 1)
        written.append(fed)
    return torch.cat(written, dim=1)


def hugging_face(config: Config, weights: dict[str, Tensor]) -> transformers.Qwen2ForCausalLM:
    settings = {key: value for key, value in config.__dict__.items() if key != "rope_theta"}
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**settings, rope_parameters=rope, attn_implementation="sdpa"))
    model.load_state_dict(weights)
    return model.eval()


def generate(model: transformers.Qwen2ForCausalLM, prompt: Tensor, count: int, greedy: bool) -> Tensor:
    sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    written = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=count,
        min_new_tokens=count,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
        **sampling,
    )
    return written[:, prompt.shape[1] :]


def tokens_per_second(run, tokens: int, rounds: int) -> float:
    run()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        run().cpu()
        seconds.append(time.perf_counter() - start)
    return round(tokens / statistics.median(seconds), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="PyTorch's tokens a second when decoding a batch")
    add_model_options(parser)
    parser.add_argument("--batch", type=int, default=64, help="B")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens to decode for each sequence after its prompt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--greedy", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = model_config(options)
    weights = random_weights(config, options.seed)
    ours = Qwen2(config).eval()
    ours.load_state_dict(weights)
    ours.to(options.device)
    theirs = hugging_face(config, weights).to(options.device)
    generator = torch.Generator().manual_seed(options.seed + 1)
    prompt = torch.randint(0, config.vocab_size, (options.batch, options.prompt), generator=generator).to(options.device)

    by_loop = lambda: decode(ours, prompt, options.tokens, options.greedy)  # noqa: E731
    by_generate = lambda: generate(theirs, prompt, options.tokens, options.greedy)  # noqa: E731
    with torch.inference_mode():
        if options.greedy and not torch.equal(by_loop(), by_generate()):
            sys.exit("the loop and generate decode different tokens; one of them is wrong")
        total = options.batch * options.tokens
        speeds = {name: tokens_per_second(run, total, options.rounds) for name, run in (("loop", by_loop), ("generate", by_generate))}
    report = {
        "name": "decode",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": options.threads,
        "device": options.device,
        "config": {**config.__dict__, "batch": options.batch, "prompt": options.prompt, "tokens": options.tokens},
        "tokensPerSecond": speeds,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

"""The Qwen2 architecture in plain PyTorch: a reference for the speed and the numbers of Bunraku's model.

Parameter names are Hugging Face's, so that this model and Hugging Face's load each other's checkpoints. tests/golden/qwen2.py
compares this model with transformers' Qwen2ForCausalLM. This module knows no data, no optimizer and no clock.

Shapes: B batch, T tokens, D width, H heads, K key/value heads, C head width (D / H), V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Fields are named as in a Hugging Face config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool = False
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


def rope_tables(config: Config, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin (T, C); Hugging Face's layout, which rotates channel i with channel i + C/2."""
    c = config.head_dim
    frequencies = config.rope_theta ** (-torch.arange(0, c, 2, dtype=torch.float64) / c)
    angles = positions.to(torch.float64)[:, None] * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


def attend_naively(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, every score in memory; q, k and v are (B, H, T, C)."""
    t = q.shape[2]
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    future = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ v


def attend_fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Norm(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden_size))
        self.eps = config.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        d, kv = config.hidden_size, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(d, d, bias=True)
        self.k_proj = nn.Linear(d, kv, bias=True)
        self.v_proj = nn.Linear(d, kv, bias=True)
        self.o_proj = nn.Linear(d, d, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, T, C) and k (B, K, T, C), rotated by their positions, and v (B, K, T, C)."""
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, -1, self.config.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def spread(self, kv: Tensor) -> Tensor:
        """(B, K, T, C) to (B, H, T, C)."""
        repeats = self.config.num_attention_heads // self.config.num_key_value_heads
        return kv if repeats == 1 else kv.repeat_interleave(repeats, dim=1)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend) -> Tensor:
        q, k, v = self.project(x, cos, sin)
        return self.o_proj(attend(q, self.spread(k), self.spread(v)).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        d, f = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(d, f, bias=False)
        self.up_proj = nn.Linear(d, f, bias=False)
        self.down_proj = nn.Linear(f, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = Norm(config)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = Norm(config)
        self.mlp = Mlp(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = Norm(config)


class Qwen2(nn.Module):
    def __init__(self, config: Config, attend=attend_fused):
        super().__init__()
        self.config = config
        self.attend = attend
        self.model = Trunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """tokens (B, T) int64; cos and sin (T, C) of `rope_tables`. Returns logits (B, T, V)."""
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, cos, sin, self.attend)
        return self.lm_head(self.model.norm(x))


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """(B, T-1): entry t is the natural-log probability of token t+1 given tokens 0..t."""
    return logits[:, :-1].log_softmax(dim=-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)

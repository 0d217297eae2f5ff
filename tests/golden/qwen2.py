"""Writes tests/golden/model/: what Hugging Face's Qwen2 computes, to check Bunraku's transformer, loss, AdamW and decode.

Run: python tests/golden/qwen2.py    (a Python with torch, transformers and safetensors: see bench/peers/README.md)

Three tiny random policies, float32 on the CPU:
  tied    2 layers, 4 heads on 2 key/value heads, tied embeddings, rope_theta 1e4, eps 1e-6
  untied  1 layer,  4 heads on 1 key/value head,  its own head,    rope_theta 1e6, eps 1e-5 (other settings on purpose)
  wide    1 layer,  4 heads on 2 key/value heads, heads of width 16 instead of 8, which engines may have own kernels for

For each NAME:
  NAME.safetensors           the weights, Hugging Face names
  NAME.expected.safetensors  logits (B,T,V) · logProbs (B,T): of token t given those before it, 0 at t = 0 ·
                             grad.<name>, of the loss, before clipping · after.<name>, the weights after one AdamW step
  NAME.json                  config · tokens, mask, weight (B,T), a row a sequence · loss · gradNorm (before clipping) ·
                             adamw (settings) · decode: greedy with a KV cache · spread: the largest difference between
                             these numbers and the same computed in float64, so that a tolerance has a reason

loss = -sum(mask * weight * logProbs) / sum(mask).   AdamW decays every parameter; the norm is clipped before the step.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "bench" / "peers"))
import qwen2 as plain  # noqa: E402

B, T, V = 3, 12, 64
PROMPT, NEW = 4, 10
ADAMW = {"lr": 1e-3, "betas": [0.9, 0.99], "eps": 1e-8, "weightDecay": 0.01, "clipNorm": 1.0}
SHAPE = {"vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
VARIANTS = {
    "tied": {**SHAPE, "num_hidden_layers": 2, "num_key_value_heads": 2, "tie_word_embeddings": True, "rope_theta": 1e4, "rms_norm_eps": 1e-6},
    "untied": {**SHAPE, "num_hidden_layers": 1, "num_key_value_heads": 1, "tie_word_embeddings": False, "rope_theta": 1e6, "rms_norm_eps": 1e-5},
    "wide": {**SHAPE, "hidden_size": 64, "num_hidden_layers": 1, "num_key_value_heads": 2, "tie_word_embeddings": True, "rope_theta": 1e4, "rms_norm_eps": 1e-6},
}


def make_policy(config: dict) -> Qwen2ForCausalLM:
    rope = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    settings = {key: value for key, value in config.items() if key != "rope_theta"}
    model = Qwen2ForCausalLM(
        Qwen2Config(**settings, rope_parameters=rope, max_position_embeddings=64, attention_dropout=0.0, attn_implementation="eager")
    )
    assert model.config.rope_parameters["rope_theta"] == config["rope_theta"]
    for name, p in model.named_parameters():
        p.data = 1 + 0.2 * torch.randn_like(p) if "norm" in name else 0.3 * torch.randn_like(p)
    return model.eval()


def learn_once(model, log_probs_of, data: dict):
    """One update of what requires a gradient. Returns logits, log-probs (B, T), loss, gradients, norm, weights after."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    logits, picked = log_probs_of(model, data["tokens"])
    log_probs = torch.cat([torch.zeros_like(picked[:, :1]), picked], dim=1)
    mask, weight = data["mask"].to(logits.dtype), data["weight"].to(logits.dtype)
    loss = -(mask * weight * log_probs).sum() / mask.sum()
    optimizer = torch.optim.AdamW(
        trained.values(), lr=ADAMW["lr"], betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"], weight_decay=ADAMW["weightDecay"]
    )
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in trained.items()}
    norm = torch.nn.utils.clip_grad_norm_(trained.values(), ADAMW["clipNorm"])
    optimizer.step()
    after = {name: p.detach().clone() for name, p in trained.items()}
    return logits.detach(), log_probs.detach(), loss.item(), gradients, norm.item(), after


def decode_greedily(model, prompt: torch.Tensor, margin_least: float = 0.01) -> dict:
    """(B, PROMPT) to NEW more tokens each, one forward a token after the first, through transformers' cache."""
    cache, fed, tokens, log_probs, margin = None, prompt, [], [], float("inf")
    with torch.no_grad():
        for _ in range(NEW):
            out = model(fed, past_key_values=cache, use_cache=True)
            cache, last = out.past_key_values, out.logits[:, -1]
            best = last.topk(2, dim=-1).values
            margin = min(margin, (best[:, 0] - best[:, 1]).min().item())
            fed = last.argmax(dim=-1, keepdim=True)
            tokens.append(fed)
            log_probs.append(last.log_softmax(dim=-1).gather(-1, fed))
    assert margin > margin_least, f"greedy choices are too close to be a reference: margin {margin}"
    return {"prompt": prompt.tolist(), "tokens": torch.cat(tokens, 1).tolist(), "logProbs": torch.cat(log_probs, 1).tolist(), "margin": margin}


def hugging_face(model, tokens):
    logits = model(tokens).logits
    return logits, plain.token_log_probs(logits, tokens)


def plainly(model, tokens):
    logits = model(tokens, *plain.rope_tables(model.config, torch.arange(tokens.shape[1]), torch.float64))
    return logits, plain.token_log_probs(logits, tokens)


def furthest(a: dict, b: dict) -> float:
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    return max((a[name].double() - b[name].double()).abs().max().item() for name in a)


def write(name: str, config: dict, seed: int) -> None:
    torch.manual_seed(seed)
    model = make_policy(config)
    data = {"tokens": torch.randint(0, V, (B, T)), "mask": (torch.rand(B, T) < 0.6).int(), "weight": torch.randn(B, T)}
    data["mask"][:, 0] = 0
    weights = {key: p.detach().clone() for key, p in model.named_parameters()}
    decoded = decode_greedily(model, data["tokens"][:, :PROMPT])

    reference = plain.Qwen2(plain.Config(**config), plain.attend_naively).double()
    reference.load_state_dict({**weights, **({} if "lm_head.weight" in weights else {"lm_head.weight": weights["model.embed_tokens.weight"]})})
    logits64, log_probs64, loss64, gradients64, norm64, after64 = learn_once(reference, plainly, data)
    logits, log_probs, loss, gradients, norm, after = learn_once(model, hugging_face, data)
    spread = {
        "logits": (logits - logits64).abs().max().item(),
        "logProbs": (log_probs - log_probs64).abs().max().item(),
        "loss": abs(loss - loss64),
        "gradNorm": abs(norm - norm64),
        "gradients": furthest(gradients, gradients64),
        "after": furthest(after, after64),
    }
    assert norm > ADAMW["clipNorm"], f"clipping must be at work, norm is {norm}"
    assert spread["logits"] < 1e-4 and spread["gradients"] < 1e-4 and spread["after"] < 1e-4, spread

    folder = HERE / "model"
    folder.mkdir(exist_ok=True)
    expected = {"logits": logits, "logProbs": log_probs}
    expected |= {f"grad.{key}": g for key, g in gradients.items()} | {f"after.{key}": p for key, p in after.items()}
    save_file(weights, folder / f"{name}.safetensors", metadata={"format": "pt"})
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / f"{name}.expected.safetensors")
    for file in folder.glob(f"{name}*.safetensors"):
        file.chmod(0o644)
    assert furthest(load_file(folder / f"{name}.safetensors"), weights) == 0
    record = {
        "source": f"transformers {transformers.__version__} Qwen2ForCausalLM, torch {torch.__version__.split('+')[0]}, float32, seed {seed}",
        "config": config,
        **{key: value.tolist() for key, value in data.items()},
        "loss": loss,
        "gradNorm": norm,
        "adamw": ADAMW,
        "decode": decoded,
        "spread": spread,
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    (folder / f"{name}.json").write_text("{\n" + lines + "\n}\n")
    print(name, f"loss {loss:.6f} norm {norm:.4f} margin {decoded['margin']:.3f}", spread)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, seed in {"tied": 10, "untied": 4, "wide": 2}.items():
        write(name, VARIANTS[name], seed)

"""Writes tests/golden/checkpoints/NAME/: whole Hugging Face folders of tiny random models, and what transformers computes with them.

Run: python tests/golden/checkpoints.py    (a Python with torch, transformers and safetensors: see bench/peers/README.md)

  qwen2   bfloat16 in two shards with an index, tied embeddings, biases of QKV; chat template inside tokenizer_config.json
  qwen3   float32 in one file, own head, norms of queries and keys, heads wider than width / heads; chat_template.jinja
  llama   float16 in one file, own head, llama3 rope scaling, ignore_merges, a template that opens with <|begin_of_text|>

Each folder is what save_pretrained writes, with a byte-level BPE of 496 tokens trained here, and besides:
  expected.safetensors  logits (B,T,V) · logProbs (B,T), of token t given those before it, 0 at t = 0 · grad.<name>, before
                        clipping · after.<name>, the weights after one AdamW step; all float32, from float32 copies of the weights
  expected.json         tokens, mask, weight (B,T) · loss · gradNorm · adamw · decode: greedy with a KV cache ·
                        strings and ids: BPE of a few hundred texts · dialogues: messages, and their ids by the template

loss = -sum(mask * weight * logProbs) / sum(mask), as in qwen2.py. The chat templates are our own, in the manner of each family.
"""

import importlib.util
import json
import random
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

HERE = Path(__file__).parent
# By path, since bench/peers, which it imports from, has a qwen2.py as well.
spec = importlib.util.spec_from_file_location("golden_qwen2", HERE / "qwen2.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

V, B, T = 512, 3, 12
CORPUS = [
    "You're a helpful assistant. You are playing a bandit game. Goal: Maximize your total reward by choosing which arm to pull.",
    "Game Rules: There are 2 arms, named Phoenix and Dragon. Each arm has its own reward distribution. Think about it!",
    "You have 10 actions left. Always output: <think> [Your thoughts] </think> <answer> [your answer] </answer> with no extra text.",
    "State:\n##########\n#___P____#\n#___X_O__#\n##########\nThe meaning of each symbol in the state is: #: wall, _: empty, O: target",
    "Your available actions are:\nUp, Down, Left, Right\nYou can make up to 10 actions, separated by the action separator \" || \"\n",
    "Reward:\n-0.1\nTurn 2:\nI'll push the box; we've moved 1234567 steps, haven't we? It's 3.14159 and 2,718.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Ça va? ¿Qué tal? Привет, мир! Γειά σου Κόσμε.",
    "你好,世界。今天天气很好。こんにちは世界、お元気ですか。안녕하세요 세계. שלום עולם. مرحبا بالعالم. नमस्ते दुनिया",
    "def f(x):\n    return {'a': x ** 2, \"b\": [x - 1, x + 1]}  # comment\n\n\tif x != y and not z:\n\t\tpass\r\n",
]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML = (
    "{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if not (loop.first and message.role == 'system') %}"
    "{{- '<|im_start|>' + message.role + '\\n' + CONTENT + '<|im_end|>' + '\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
# Thoughts of earlier turns are forgotten, as Qwen3's own template does.
FORGETFUL = (
    "(message.content.split('</think>')[-1].lstrip('\\n')"
    " if message.role == 'assistant' and not loop.last else message.content)"
)
HEADERS = (
    "{{- bos_token }}{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + (message['content'] | trim) + '<|eot_id|>' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
SHAPE = {
    "vocab_size": V,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 4096,
    "attn_implementation": "eager",
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def plain(theta: float) -> dict:
    return {"rope_type": "default", "rope_theta": theta}


def qwen_tokens(extra: list[str]) -> dict:
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return {"digits": "", "special": special, "extra": extra, "normalizer": normalizers.NFC(), "eos": "<|im_end|>", "bos": None, "pad": "<|endoftext|>"}


MODELS = {
    "qwen2": {
        "make": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True, rope_parameters=plain(1e6), rms_norm_eps=1e-6)),
        "dtype": torch.bfloat16,
        "shard": "7KB",
        "tokens": qwen_tokens([]),
        "template": CHATML.replace("CONTENT", "message.content"),
        "inline_template": True,
    },
    "qwen3": {
        "make": lambda: Qwen3ForCausalLM(
            Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=False, rope_parameters=plain(1e6), rms_norm_eps=1e-6)
        ),
        "dtype": torch.float32,
        "shard": "5GB",
        "tokens": qwen_tokens(["<think>", "</think>"]),
        "template": CHATML.replace("CONTENT", FORGETFUL),
        "inline_template": False,
    },
    "llama": {
        "make": lambda: LlamaForCausalLM(
            LlamaConfig(**SHAPE, head_dim=8, tie_word_embeddings=False, rope_parameters={**LLAMA3, "rope_theta": 500000.0}, rms_norm_eps=1e-5)
        ),
        "dtype": torch.float16,
        "shard": "5GB",
        "tokens": {
            "digits": "{1,3}",
            "special": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
            "extra": [],
            "normalizer": None,
            "eos": "<|eot_id|>",
            "bos": "<|begin_of_text|>",
            "pad": "<|end_of_text|>",
        },
        "template": HEADERS,
        "inline_template": False,
    },
}


def make_tokenizer(spec: dict, template: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE(ignore_merges=spec["bos"] is not None))
    if spec["normalizer"] is not None:
        tokenizer.normalizer = spec["normalizer"]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT.format(digits=spec["digits"])), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    added = len(spec["special"]) + len(spec["extra"])
    # Fewer ids than the model has rows, as real checkpoints pad theirs.
    trainer = trainers.BpeTrainer(
        vocab_size=V - 16 - added, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in spec["special"]])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in spec["extra"]])
    if spec["bos"] is not None:
        bos = (spec["bos"], tokenizer.token_to_id(spec["bos"]))
        tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])]
        )
    names = {"eos_token": spec["eos"], "pad_token": spec["pad"], **({} if spec["bos"] is None else {"bos_token": spec["bos"]})}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, clean_up_tokenization_spaces=False, **names)


def strings(spec: dict, seed: int) -> list[str]:
    pick = random.Random(seed)
    words = " ".join(CORPUS).split(" ")
    odd = ["", " ", "  ", "\n", "\n\n", " \n ", "\t", "\r\n", "\u00a0", "\u3000", "e\u0301", "é", "Å", "ﬁ", "👩‍👩‍👧‍👦", "🤖🎉", "𝔘𝔫𝔦", "\u200b", "ᄒ", "n̈", "½", "٣", "ſ", "İ", "'S", "'Ll", "don'T", "…", "—", "0123456789", "a" * 40, " ..", "||", "</", "<answer>", "</think>", "<think>"]
    texts = [*CORPUS, *odd, *spec["special"], *spec["extra"]]
    while len(texts) < 320:
        parts = [pick.choice(pick.choice([words, odd, odd, spec["special"] + spec["extra"] + ["x"]])) for _ in range(pick.randint(1, 8))]
        texts.append(pick.choice(["", " ", "\n"]).join(parts))
    return texts


def dialogues() -> list[list[dict]]:
    def say(role, content):
        return {"role": role, "content": content}

    thought = "<think>It's the Phoenix.</think><answer>Phoenix</answer>"
    return [
        [say("user", "Hello")],
        [say("system", "You're a helpful assistant. "), say("user", "\nTurn 1:\nState:\n#P_X#\n")],
        [say("system", "Be brief."), say("user", "Which arm?"), say("assistant", thought), say("user", "Reward:\n-0.1\n\nTurn 2:\nAgain")],
        [say("user", "a"), say("assistant", thought), say("user", "b"), say("assistant", "<think>x</think><answer>Up || Left</answer>"), say("user", "你好")],
    ]


def write(name: str, seed: int) -> None:
    spec = MODELS[name]
    torch.manual_seed(seed)
    folder = HERE / "checkpoints" / name
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = make_tokenizer(spec["tokens"], spec["template"])
    model = spec["make"]()
    for key, p in model.named_parameters():
        p.data = 1 + 0.2 * torch.randn_like(p) if "norm" in key else 0.3 * torch.randn_like(p)
    stops = [tokenizer.convert_tokens_to_ids(token) for token in dict.fromkeys([spec["tokens"]["eos"], spec["tokens"]["pad"]])]
    model.generation_config.update(eos_token_id=stops, pad_token_id=stops[-1], do_sample=True, temperature=0.7)
    model.config.eos_token_id = stops[0]
    if spec["tokens"]["bos"] is not None:
        model.config.bos_token_id = tokenizer.bos_token_id
        model.generation_config.bos_token_id = tokenizer.bos_token_id
    model.to(spec["dtype"]).save_pretrained(folder, max_shard_size=spec["shard"])
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    if spec["inline_template"]:
        settings["chat_template"] = (folder / "chat_template.jinja").read_text()
        (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    compact = json.dumps(json.loads((folder / "tokenizer.json").read_text()), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(compact + "\n")

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    data = {"tokens": torch.randint(0, V, (B, T)), "mask": (torch.rand(B, T) < 0.6).int(), "weight": torch.randn(B, T)}
    data["mask"][:, 0] = 0
    decoded = golden.decode_greedily(model, data["tokens"][:, : golden.PROMPT], margin_least=0.002)
    logits, log_probs, loss, gradients, norm, after = golden.learn_once(model, golden.hugging_face, data)
    assert norm > golden.ADAMW["clipNorm"], f"clipping must be at work, norm is {norm}"
    expected = {"logits": logits, "logProbs": log_probs}
    expected |= {f"grad.{key}": g for key, g in gradients.items()} | {f"after.{key}": p for key, p in after.items()}
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    texts = strings(spec["tokens"], seed)
    said = []
    for messages in dialogues():
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        said.append({"messages": messages, "text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]})
    record = {
        **{key: value.tolist() for key, value in data.items()},
        "loss": loss,
        "gradNorm": norm,
        "adamw": golden.ADAMW,
        "decode": decoded,
        "stops": stops,
        "strings": texts,
        "ids": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts],
        "decoded": [tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"], skip_special_tokens=True) for text in texts],
        "dialogues": said,
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in record.items())
    (folder / "expected.json").write_text("{\n" + lines + "\n}\n")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(name, len(tokenizer), f"loss {loss:.6f} norm {norm:.4f} margin {decoded['margin']:.3f}", sum(f.stat().st_size for f in folder.iterdir()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in MODELS:
        write(name, seed=1)

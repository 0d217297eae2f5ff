"""Writes tests/golden/checkpoints/NAME/: whole Hugging Face folders of tiny random models, and what transformers computes with them.

Run: python tests/golden/checkpoints.py [NAME …]    (a Python with torch, transformers, safetensors and peft: see bench/peers/README.md)

  qwen2   bfloat16 in two shards with an index, tied embeddings, biases of QKV; chat template inside tokenizer_config.json
  qwen3   float32 in one file, own head, norms of queries and keys, heads wider than width / heads; chat_template.jinja
  qwen3_moe  float32 in one file, own head, 4 experts of which a token gets 2, weights that add up to 1
  llama   float16 in one file, own head, llama3 rope scaling, ignore_merges, a template that opens with <|begin_of_text|>
  mistral float16 in one file, own head, a window of 5 tokens; BPE with byte fallback and a space before the first text
  smollm3 bfloat16 in two shards, tied embeddings, a layer without positions; a template that prints today's date
  gemma3  bfloat16 in one file, tied and scaled embeddings, four norms a layer, gelu, a layer with a window of 4 tokens and rotary
          base of its own, one with linear rope scaling, scores scaled by a setting; BPE with byte fallback

Each folder is what save_pretrained writes, with a BPE of 496 or 384 tokens trained here, and besides:
  expected.safetensors  logits (B,T,V) · logProbs (B,T), of token t given those before it, 0 at t = 0 · grad.<name>, before
                        clipping · after.<name>, the weights after one AdamW step · lora.before.<name>, lora.grad.<name> and
                        lora.after.<name>, peft's adapters of every matrix in such a step of their own; all float32, computed from
                        copies of the weights in float32 (qwen2, qwen3, llama) or float64 (the other models)
  expected.json         tokens, mask, weight (B,T) · loss · gradNorm · adamw · lora: settings · decode: greedy with a KV cache ·
                        strings and ids: BPE of a few hundred texts · dialogues: messages, and their ids by the template

loss = -sum(mask * weight * logProbs) / sum(mask), as in qwen2.py. The chat templates are our own, in the manner of each family.
"""

import importlib.util
import json
import random
import shutil
import sys
from datetime import datetime
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

HERE = Path(__file__).parent
# Loaded by its path: golden/qwen2.py imports from bench/peers, which has a qwen2.py too.
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
# Asks for today's date and, like SmolLM3's own template, does not check that strftime_now is defined.
DATED = (
    "{%- set today = strftime_now('%d %B %Y') %}{{- '<|im_start|>system\\n## Metadata\\n\\nToday Date: ' ~ today ~ '\\n\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- '## Custom Instructions\\n\\n' + messages[0].content.rstrip() + '\\n\\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role == 'user' %}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- elif message.role == 'assistant' %}{% generation %}{{- '<|im_start|>assistant\\n' + message.content.lstrip('\\n') + '<|im_end|>\\n' }}{% endgeneration %}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
# The system message goes in front of the last user message, and roles must alternate, as in Mistral 7B v0.3's own template.
INSTRUCTIONS = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set turns = messages[1:] %}"
    "{%- else %}{%- set turns = messages %}{%- endif %}{{- bos_token }}{%- for message in turns %}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('roles must alternate') }}{%- endif %}"
    "{%- if message['role'] == 'user' %}{%- if loop.last and system is defined %}{{- '[INST] ' + system + '\\n\\n' + message['content'] + '[/INST]' }}"
    "{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}"
    "{%- else %}{{- ' ' + message['content'] + eos_token }}{%- endif %}{%- endfor %}"
)
# The system message begins the first user message, and the assistant's role is called model, as in Gemma 3's own template.
TURNS = (
    "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] + '\\n\\n' -%}"
    "{%- set turns = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set turns = messages -%}{%- endif -%}"
    "{%- for message in turns -%}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif -%}"
    "{%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}"
    "{{ '<start_of_turn>' + role + '\\n' + (first if loop.first else '') }}{{ message['content'] | trim }}{{ '<end_of_turn>\\n' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"
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
SMALLER = {**SHAPE, "vocab_size": 400}
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
    "qwen3_moe": {
        "make": lambda: Qwen3MoeForCausalLM(
            Qwen3MoeConfig(
                **SMALLER, head_dim=16, tie_word_embeddings=False, rope_parameters=plain(1e6), rms_norm_eps=1e-6,
                num_experts=4, num_experts_per_tok=2, moe_intermediate_size=6, norm_topk_prob=True,
            )
        ),
        "dtype": torch.float32,
        "shard": "5GB",
        "tokens": {**qwen_tokens(["<think>", "</think>"]), "size": SMALLER["vocab_size"], "strings": 120},
        "template": CHATML.replace("CONTENT", FORGETFUL),
        "inline_template": False,
    },
    "mistral": {
        "make": lambda: MistralForCausalLM(
            MistralConfig(**SMALLER, head_dim=4, tie_word_embeddings=False, sliding_window=5, rope_parameters=plain(1e6), rms_norm_eps=1e-5)
        ),
        "dtype": torch.float16,
        "shard": "5GB",
        "tokens": {
            "fallback": SMALLER["vocab_size"],
            "strings": 120,
            "special": ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"],
            "extra": [],
            "normalizer": None,
            "splitter": pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False),
            "decoders": [decoders.Strip(" ", 1, 0)],
            "eos": "</s>",
            "bos": "<s>",
            "pad": "<unk>",
        },
        "template": INSTRUCTIONS,
        "inline_template": True,
    },
    "smollm3": {
        "make": lambda: SmolLM3ForCausalLM(
            SmolLM3Config(**SHAPE, no_rope_layers=[1, 0], pad_token_id=None, tie_word_embeddings=True, rope_parameters=plain(2e6), rms_norm_eps=1e-6)
        ),
        "dtype": torch.bfloat16,
        "shard": "7KB",
        "tokens": {
            "digits": "{1,3}",
            "strings": 120,
            "special": ["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"],
            "extra": ["<think>", "</think>"],
            "normalizer": None,
            "eos": "<|im_end|>",
            "bos": "<|begin_of_text|>",
            "pad": "<|end_of_text|>",
        },
        "template": DATED,
        "inline_template": False,
    },
    "gemma3": {
        "make": lambda: Gemma3ForCausalLM(
            Gemma3TextConfig(
                **SMALLER, head_dim=16, sliding_window=4, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=9,
                rope_parameters={"sliding_attention": plain(1e4), "full_attention": {**plain(1e6), "rope_type": "linear", "factor": 8.0}},
            )
        ),
        "dtype": torch.bfloat16,
        "shard": "5GB",
        "tokens": {
            "fallback": SMALLER["vocab_size"],
            "strings": 120,
            "special": ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"],
            "extra": ["\n\n"],
            "normalizer": normalizers.Replace(" ", "\u2581"),
            "splitter": pre_tokenizers.Split(" ", "merged_with_previous"),
            "decoders": [],
            "eos": "<end_of_turn>",
            "bos": "<bos>",
            "pad": "<pad>",
        },
        "template": TURNS,
        "inline_template": True,
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


def with_bytes(spec: dict) -> Tokenizer:
    """A BPE in the manner of SentencePiece: unknown characters become tokens for their bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if spec["normalizer"] is not None:
        tokenizer.normalizer = spec["normalizer"]
    tokenizer.pre_tokenizer = spec["splitter"]
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *spec["decoders"]])
    octets = [f"<0x{octet:02X}>" for octet in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=spec["fallback"] - 16 - len(spec["extra"]), special_tokens=[*spec["special"], *octets], limit_alphabet=70, show_progress=False, min_frequency=1
    )
    words = [word for text in CORPUS for word in text.split(" ")]
    tokenizer.train_from_iterator([word for text in words for word in (text, "\u2581" + text)], trainer)
    # The trainer makes every token special that must be in the vocabulary; but bytes are not special.
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] not in octets]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in spec["extra"]])
    return tokenizer


def make_tokenizer(spec: dict, template: str) -> PreTrainedTokenizerFast:
    names = {"eos_token": spec["eos"], "pad_token": spec["pad"], **({} if spec["bos"] is None else {"bos_token": spec["bos"]})}
    if "fallback" in spec:
        names["unk_token"] = "<unk>"
        return PreTrainedTokenizerFast(tokenizer_object=with_bytes(spec), chat_template=template, clean_up_tokenization_spaces=False, **names)
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
    # The tokenizer has fewer ids than the model has rows, because real checkpoints pad their embeddings.
    trainer = trainers.BpeTrainer(
        vocab_size=spec.get("size", V) - 16 - added, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in spec["special"]])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in spec["extra"]])
    if spec["bos"] is not None:
        bos = (spec["bos"], tokenizer.token_to_id(spec["bos"]))
        tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, clean_up_tokenization_spaces=False, **names)


def strings(spec: dict, seed: int) -> list[str]:
    pick = random.Random(seed)
    words = " ".join(CORPUS).split(" ")
    odd = ["", " ", "  ", "\n", "\n\n", " \n ", "\t", "\r\n", "\u00a0", "\u3000", "e\u0301", "é", "Å", "ﬁ", "👩‍👩‍👧‍👦", "🤖🎉", "𝔘𝔫𝔦", "\u200b", "ᄒ", "n̈", "½", "٣", "ſ", "İ", "'S", "'Ll", "don'T", "…", "—", "0123456789", "a" * 40, " ..", "||", "</", "<answer>", "</think>", "<think>"]
    texts = [*CORPUS, *odd, *spec["special"], *spec["extra"]]
    while len(texts) < spec.get("strings", 320):
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


def apart(tensors: dict) -> dict:
    """The experts' tensors under the names that checkpoints have."""
    named = {}
    for key, tensor in tensors.items():
        if ".experts." not in key:
            named[key] = tensor
            continue
        parts = dict(zip(("gate_proj", "up_proj"), tensor.chunk(2, dim=1))) if key.endswith("gate_up_proj") else {"down_proj": tensor}
        for part, values in parts.items():
            named |= {f"{key.rsplit('.', 1)[0]}.{expert}.{part}.weight": rows for expert, rows in enumerate(values)}
    return named


def adapt_once(folder: Path, data: dict, dtype: torch.dtype) -> tuple[dict, dict]:
    """One update of peft's adapters, all else frozen. Returns tensors, and settings with the loss."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
    # Experts are one tensor in transformers, which peft does not adapt.
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", *([] if "moe" in folder.name else ["gate_proj", "up_proj", "down_proj"])]
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=6, target_modules=targets, lora_dropout=0.0)).eval()
    for p in model.parameters():
        if p.requires_grad:
            p.data = 0.3 * torch.randn_like(p, dtype=dtype)
    plain_name = lambda key: key.removeprefix("base_model.model.").replace(".default", "")
    before = {key: p.detach().clone() for key, p in model.named_parameters() if p.requires_grad}
    _, _, loss, gradients, norm, after = golden.learn_once(model, golden.hugging_face, data)
    parts = {"before": before, "grad": gradients, "after": after}
    tensors = {f"lora.{part}.{plain_name(key)}": value for part, values in parts.items() for key, value in values.items()}
    return tensors, {"rank": 2, "alpha": 6, "loss": loss, "gradNorm": norm}


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
    today = datetime.now().strftime("%d %B %Y")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    if spec["inline_template"]:
        settings["chat_template"] = (folder / "chat_template.jinja").read_text()
        (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    compact = json.dumps(json.loads((folder / "tokenizer.json").read_text()), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(compact + "\n")

    dtype = torch.float32 if name in ("qwen2", "qwen3", "llama") else torch.float64
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
    data = {"tokens": torch.randint(0, model.config.vocab_size, (B, T)), "mask": (torch.rand(B, T) < 0.6).int(), "weight": torch.randn(B, T)}
    data["mask"][:, 0] = 0
    decoded = golden.decode_greedily(model, data["tokens"][:, : golden.PROMPT], margin_least=0.002)
    logits, log_probs, loss, gradients, norm, after = golden.learn_once(model, golden.hugging_face, data)
    assert norm > golden.ADAMW["clipNorm"], f"clipping must be at work, norm is {norm}"
    expected = {"logits": logits, "logProbs": log_probs}
    expected |= {f"grad.{key}": g for key, g in apart(gradients).items()} | {f"after.{key}": p for key, p in apart(after).items()}
    adapted, lora = adapt_once(folder, data, dtype)
    expected |= adapted
    save_file({key: value.float().contiguous() for key, value in expected.items()}, folder / "expected.safetensors")
    texts = strings(spec["tokens"], seed)
    # Each text stands after a special token, where Mistral puts no space before a text. Below, a letter keeps the decoder from removing a space.
    ids = [tokenizer(spec["tokens"]["eos"] + text, add_special_tokens=False)["input_ids"][1:] for text in texts]
    letter = tokenizer.convert_tokens_to_ids("a")
    said = []
    for messages in dialogues():
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True).replace(today, "26 Jul 2024")
        said.append({"messages": messages, "text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]})
    record = {
        **{key: value.tolist() for key, value in data.items()},
        "loss": loss,
        "gradNorm": norm,
        "adamw": golden.ADAMW,
        "lora": lora,
        "decode": decoded,
        "stops": stops,
        "strings": texts,
        "ids": ids,
        "decoded": [tokenizer.decode([letter, *text], skip_special_tokens=True)[1:] for text in ids],
        "dialogues": said,
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in record.items())
    (folder / "expected.json").write_text("{\n" + lines + "\n}\n")
    for file in folder.iterdir():
        file.chmod(0o644)
    print(name, len(tokenizer), f"loss {loss:.6f} norm {norm:.4f} margin {decoded['margin']:.3f}", sum(f.stat().st_size for f in folder.iterdir()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        write(name, seed=1)

"""What transformers, or peft, makes of exported folders.

Each line of standard input is JSON {"folder": path, "tokens": rows, "texts": list, "dialogue": messages}. The answer is a line of JSON
{"logits": flat (B * T * V), "ids": of each text, "prompt": ids of the dialogue by the chat template}.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging


def answer(folder, tokens, texts, dialogue):
    adapters = Path(folder, "adapter_config.json")
    base = json.loads(adapters.read_text())["base_model_name_or_path"] if adapters.exists() else folder
    dtype = torch.float32 if base != folder else "auto"
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()
    assert model.dtype == torch.float32, model.dtype
    if base != folder:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, folder)
    tokenizer = AutoTokenizer.from_pretrained(base)
    with torch.no_grad():
        logits = model(torch.tensor(tokens)).logits
    prompt = tokenizer.apply_chat_template(dialogue, tokenize=False, add_generation_prompt=True)
    return {
        "logits": logits.flatten().tolist(),
        "ids": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts],
        "prompt": tokenizer(prompt, add_special_tokens=False)["input_ids"],
    }


torch.set_num_threads(1)
logging.disable_progress_bar()
for line in sys.stdin:
    print(json.dumps(answer(**json.loads(line))), flush=True)

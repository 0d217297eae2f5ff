"""What transformers, or peft, computes with an exported folder. Arguments: the folder, and JSON {"tokens": rows, "texts": list, "dialogue": messages}.

Writes JSON {"logits": flat (B * T * V), "ids": of each text, "prompt": ids of a dialogue by the chat template}.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, asked = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)
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
    logits = model(torch.tensor(asked["tokens"])).logits
prompt = tokenizer.apply_chat_template(asked["dialogue"], tokenize=False, add_generation_prompt=True)
print(
    json.dumps(
        {
            "logits": logits.flatten().tolist(),
            "ids": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in asked["texts"]],
            "prompt": tokenizer(prompt, add_special_tokens=False)["input_ids"],
        }
    )
)

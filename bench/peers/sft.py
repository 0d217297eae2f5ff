"""Can trl fine-tune on the chats that Bunraku exports? Exits 1 if not.

Run: bun run export --run runs/NAME --to jsonl --out chats.jsonl
     bun run export --policy runs/NAME --to hf --out policy
     python bench/peers/sft.py --chats chats.jsonl --policy policy
Runs `SFTTrainer` for some steps on the CPU, with the tokenizer and the shape of the exported policy and new random weights. The loss
covers replies only, without replies of weight 0. TEMPLATE marks the tokens of these replies, because trl ignores the key `weight`.
"""

import argparse
import json
import math
import sys
import tempfile

import torch
from datasets import load_dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

# The exported template, with marks around the tokens to learn from.
TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] != 'assistant' -%}"
    "{{ '<|im_start|>' + ('system\n' if message['role'] == 'system' else '') + message['content'] + '<|im_end|>' }}"
    "{%- elif message['weight'] == 0 -%}{{ message['content'] + '<|im_end|>' }}"
    "{%- else -%}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{%- endif -%}"
    "{%- endfor -%}"
)

parser = argparse.ArgumentParser()
parser.add_argument("--chats", required=True)
parser.add_argument("--policy", required=True)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--batch", type=int, default=8)
options = parser.parse_args()

set_seed(0)
torch.set_num_threads(2)
tokenizer = AutoTokenizer.from_pretrained(options.policy)
exported = tokenizer.chat_template
tokenizer.chat_template = TEMPLATE
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(options.policy))
chats = load_dataset("json", data_files=options.chats, split="train")

failed = []
replies = shown = 0
for chat in chats.select(range(min(len(chats), 500)))["messages"]:
    # `datasets` adds an empty weight to a message that has no weight; the template must ignore it.
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    if text != tokenizer.apply_chat_template(chat, tokenize=False, chat_template=exported):
        failed.append(f"the two templates differ: {text}")
    marked = tokenizer.apply_chat_template(chat, return_dict=True, return_assistant_tokens_mask=True)
    learned = [token for token, mask in zip(marked["input_ids"], marked["assistant_masks"]) if mask]
    said = [message for message in chat if message["role"] == "assistant"]
    expected = "".join(message["content"] + "<|im_end|>" for message in said if message.get("weight") != 0)
    if tokenizer.decode(learned) != expected:
        failed.append(f"learns {tokenizer.decode(learned)!r} instead of {expected!r}")
    replies += len(said)
    shown += sum(message.get("weight") == 0 for message in said)

with tempfile.TemporaryDirectory() as folder:
    settings = SFTConfig(
        output_dir=folder,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        assistant_only_loss=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        dataset_num_proc=None,
    )
    trainer = SFTTrainer(model=model, args=settings, train_dataset=chats, processing_class=tokenizer)
    trainer.train()
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
if not all(math.isfinite(loss) for loss in losses):
    failed.append("a loss is not finite")
few = max(1, len(losses) // 8)
first, last = (sum(part) / few for part in (losses[:few], losses[-few:]))
if not last < 0.75 * first:
    failed.append("the loss did not fall by a quarter")
result = {"chats": len(chats), "replies": replies, "shownOnly": shown, "steps": len(losses), "first": first, "last": last}
print(json.dumps(result))
for line in failed[:5]:
    print(line, file=sys.stderr)
sys.exit(1 if failed else 0)

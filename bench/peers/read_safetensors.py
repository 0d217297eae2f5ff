"""Does Hugging Face's library read what Bunraku writes? Exits 1 if not.

Run: python bench/peers/read_safetensors.py    (needs bun on the PATH)
Passes each file of tests/golden/model through our reader and writer, and compares the copy to the original bit for bit.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
COPY = """
import { readSafetensors, writeSafetensors } from "./model/checkpoint/safetensors.ts";
const [from, to] = process.argv.slice(-2);
const { tensors } = readSafetensors(await Bun.file(from).bytes(), from);
await Bun.write(to, writeSafetensors(tensors, { writer: "bunraku", "naïve": "键" }));
"""

failed = False
with tempfile.TemporaryDirectory() as folder:
    for original in sorted((ROOT / "tests/golden/model").glob("*.safetensors")):
        copy = Path(folder) / original.name
        subprocess.run(["bun", "-e", COPY, str(original), str(copy)], cwd=ROOT, check=True)
        expected, found = load_file(original), load_file(copy)
        with safe_open(copy, "pt") as file:
            metadata = file.metadata()
        same = expected.keys() == found.keys() and all(torch.equal(expected[name], found[name]) for name in expected)
        same = same and metadata == {"writer": "bunraku", "naïve": "键"}
        failed = failed or not same
        print(f"{original.name}: {len(found)} tensors, {'equal' if same else 'DIFFERENT'}")
sys.exit(1 if failed else 0)

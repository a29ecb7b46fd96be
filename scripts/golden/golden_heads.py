#!/usr/bin/env python3
"""Golden logits of draft heads: random Medusa heads over a tiny random model of tests/golden/models.

    python3 scripts/golden/golden_heads.py tests/golden

The hidden states are those of transformers' model before its lm_head, in float64. The heads are computed here with torch from
their authors' description: x + silu(W x + b) for each block, then a matrix for the vocabulary. Needs torch, transformers and
safetensors. tests/golden/README.md describes the files.
"""

import argparse
import json
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

torch.set_num_threads(1)

TARGET = "llama_gqa_untied"
POSITIONS = 8  # the last of the model's golden tokens
HEADS = {
    # name: (the tested features, heads, blocks, number of heads in config.json, format)
    "medusa": ("a block each, as published", 3, 1, 3, torch.float32),
    "medusa_bf16": ("several blocks, and a config.json that counts fewer heads than there are", 2, 2, 1, torch.bfloat16),
    "medusa_f16": ("heads without a block", 2, 0, 2, torch.float16),
}


def random_heads(name, heads, blocks, dim, vocab, dtype):
    torch.manual_seed(zlib.crc32(name.encode()))
    weights = {}
    for i in range(heads):
        for k in range(blocks):
            weights[f"{i}.{k}.linear.weight"] = torch.randn(dim, dim) / dim**0.5
            weights[f"{i}.{k}.linear.bias"] = torch.randn(dim)
        weights[f"{i}.{blocks}.weight"] = torch.randn(vocab, dim) / dim**0.5
    return {key: w.to(dtype) for key, w in weights.items()}


def head_logits(weights, head, blocks, x):
    for k in range(blocks):
        y = x @ weights[f"{head}.{k}.linear.weight"].double().T + weights[f"{head}.{k}.linear.bias"].double()
        x = x + y * torch.sigmoid(y)
    return x @ weights[f"{head}.{blocks}.weight"].double().T


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="tests/golden")
    out = parser.parse_args().out
    target = out / "models" / TARGET
    tokens = json.loads((target / "golden.json").read_text())["tokens"]
    model = transformers.AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager").double().eval()
    with torch.no_grad():
        hidden = model.model(torch.tensor([tokens])).last_hidden_state[0, -POSITIONS:]
    vocab, dim = model.lm_head.weight.shape
    for name, (what, heads, blocks, said, dtype) in HEADS.items():
        folder = out / "heads" / name
        folder.mkdir(parents=True, exist_ok=True)
        weights = random_heads(name, heads, blocks, dim, vocab, dtype)
        save_file(weights, folder / "medusa_lm_head.safetensors", metadata={"format": "pt"})
        write_json(folder / "config.json", {"medusa_num_heads": said, "medusa_num_layers": blocks,
                                            "base_model_name_or_path": TARGET})
        logits = torch.stack([head_logits(weights, i, blocks, hidden) for i in range(heads)])
        logits.float().numpy().astype("<f4").tofile(folder / "logits.f32")
        write_json(folder / "golden.json", {"what": what, "target": TARGET, "heads": heads, "positions": POSITIONS,
                                            "max_abs": float(logits.abs().max())})


if __name__ == "__main__":
    main()

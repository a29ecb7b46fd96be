#!/usr/bin/env python3
"""Holds a folder that `chaski convert --layout` wrote against the model it was made of.

    chaski convert model.gguf folder --layout gptq
    python3 scripts/check_export.py folder model.gguf [text.txt ...]

The folder is unpacked here by the published layouts of GPTQ and AWQ, in plain numpy, and shares no line with chaski;
the weights of model.gguf are those of the gguf package's own reader. Every weight must be the same to the bit.
With texts, Hugging Face's tokenizers library reads the folder's tokenizer.json, and must make the tokens of each text
that `build/chaski tokenize` (CHASKI_BIN) makes of it by model.gguf.
Needs numpy, safetensors and gguf, with texts tokenizers.
"""
import json
import os
import subprocess
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # what stands at the i-th nibble of a word
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def nibbles(words, bits):
    """Words of 32 bits into codes, along a last axis of their own."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (words.view(np.uint32)[..., None] >> shifts) & np.uint32(2**bits - 1)


def awq(words):
    codes = np.empty((*words.shape, 8), dtype=np.uint32)
    codes[..., AWQ_ORDER] = nibbles(words, 4)
    return codes.reshape(*words.shape[:-1], -1)


def unpacked(parts, method):
    """(rows, columns) of a weight: scale * (code - zero point)."""
    if method["quant_method"] == "awq":
        codes, zeros = awq(parts["qweight"]), awq(parts["qzeros"])
        groups = np.arange(len(codes)) // method["group_size"]
    else:
        bits = method["bits"]
        codes = nibbles(parts["qweight"], bits).transpose(0, 2, 1).reshape(-1, parts["qweight"].shape[1])
        zeros = nibbles(parts["qzeros"], bits).reshape(len(parts["qzeros"]), -1)
        zeros = zeros + (method["checkpoint_format"] == "gptq")
        groups = parts["g_idx"]
    scales = parts["scales"].astype(np.float32)
    return (scales[groups] * (codes.astype(np.float32) - zeros.astype(np.float32)[groups])).T


def theirs(name):
    """The name in a GGUF file."""
    base, end = name.rsplit(".", 1)
    if base in WHOLE:
        return f"{WHOLE[base]}.{end}"
    _, _, layer, rest = base.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.{end}"


def half_split(w, heads):
    """Rows of q and k as Hugging Face files have them, from rows whose neighbours turn together."""
    return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def check_tokens(folder, model, texts):
    from tokenizers import Tokenizer
    tokenizer, all = Tokenizer.from_file(f"{folder}/tokenizer.json"), 0
    for text in texts:
        told = subprocess.run([os.environ.get("CHASKI_BIN", "build/chaski"), "tokenize", "-q", "-m", model, "-f", text, "--ids"],
                              capture_output=True, text=True, check=True).stdout
        with open(text, encoding="utf-8", newline="") as file:
            found = tokenizer.encode(file.read()).ids
        if found != [int(token) for token in told.split()]:
            raise SystemExit(f"{text}: the tokens differ")
        all += len(found)
    print(f"{all} tokens of {len(texts)} texts are the same")


def main(folder, model, *texts):
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    method, tensors, weights = config["quantization_config"], load_file(f"{folder}/model.safetensors"), {}
    for name, value in tensors.items():
        base, part = name.rsplit(".", 1)
        if part in ("qweight", "qzeros", "scales", "g_idx"):
            weights.setdefault(base + ".weight", {})[part] = value
        else:
            weights[name] = value.astype(np.float32)
    reference = {t.name: t for t in gguf.GGUFReader(model).tensors}
    packed = 0
    for name, found in weights.items():
        packed += isinstance(found, dict)
        found = unpacked(found, method) if isinstance(found, dict) else found
        t = reference.pop(theirs(name))
        want = gguf.dequantize(t.data, t.tensor_type).reshape(found.shape)
        turned = {"attn_q.": "num_attention_heads", "attn_k.": "num_key_value_heads"}
        for part, heads in turned.items():
            if part in t.name and config["model_type"] in ("llama", "mistral"):
                want = half_split(want, config[heads])
        if not np.array_equal(found, want):
            raise SystemExit(f"{name}: {np.sum(found != want)} of {want.size} weights differ")
    if reference:
        raise SystemExit(f"the folder lacks {', '.join(reference)}")
    print(f"{len(weights)} tensors are the same, {packed} of them {method['quant_method']} of {method['bits']} bits")
    if texts:
        check_tokens(folder, model, texts)


if __name__ == "__main__":
    main(*sys.argv[1:])

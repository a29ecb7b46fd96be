#!/usr/bin/env python3
"""Rotates a llama in GGUF (f16 or f32) by Hadamard matrices without changing what it computes. The
figures on incoherence in docs/quantization.md were measured with such files.

    scripts/train/rotate.py MODEL.gguf OUT.gguf [--values-only]

Norm weights are multiplied into the following matmuls. The residual stream is rotated with random signs
in blocks of the largest power of two that divides its width; values are rotated head by head. A tied
head becomes a tensor of its own. Needs numpy and the gguf package.
"""
import argparse
import os

import gguf
import numpy as np


def hadamard(n):
    """The orthonormal Hadamard matrix of size n, a power of two."""
    h = np.ones((1, 1))
    while h.shape[0] < n:
        h = np.kron(h, [[1, 1], [1, -1]])
    return h / np.sqrt(n)


def turned(a, block):
    """Rotates the columns of a in blocks of `block` columns."""
    return (a.reshape(*a.shape[:-1], -1, block) @ hadamard(block)).reshape(a.shape)


def turn_residual(t, layers):
    dim = t["output_norm.weight"].shape[0]
    signs = np.where(np.random.default_rng(7).random(dim) < 0.5, -1.0, 1.0)

    def columns(a):
        return turned(a * signs, dim & -dim)

    def take_norm(norm, matrices):
        for m in matrices:
            t[m] = columns(t[m] * t[norm])
        t[norm] = np.ones(dim)

    for i in range(layers):
        b = f"blk.{i}."
        take_norm(b + "attn_norm.weight", [f"{b}attn_{x}.weight" for x in "qkv"])
        take_norm(b + "ffn_norm.weight", [f"{b}ffn_{x}.weight" for x in ("gate", "up")])
        for name in ("attn_output.weight", "ffn_down.weight"):
            t[b + name] = columns(t[b + name].T).T
    t.setdefault("output.weight", t["token_embd.weight"])
    take_norm("output_norm.weight", ["output.weight"])
    t["token_embd.weight"] = columns(t["token_embd.weight"])


def turn_values(t, layers, head):
    for i in range(layers):
        v, out = f"blk.{i}.attn_v.weight", f"blk.{i}.attn_output.weight"
        t[v] = turned(t[v].T, head).T
        t[out] = turned(t[out], head)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--values-only", action="store_true")
    options = parser.parse_args()
    if os.path.lexists(options.out):
        parser.error(f"{options.out}: already exists, expected the name of a new file")
    reader = gguf.GGUFReader(options.model)
    key = "llama.attention.head_count"
    if key not in reader.fields or any("bias" in t.name for t in reader.tensors):
        parser.error(f"{options.model}: model is not a llama without biases, expected one")
    other = [x.name for x in reader.tensors if x.tensor_type not in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)]
    if other:
        parser.error(f"{options.model}: tensor {other[0]} has another format, expected f32 or f16")
    t = {x.name: np.array(x.data, dtype=np.float64) for x in reader.tensors}
    layers = 1 + max(int(name.split(".")[1]) for name in t if name.startswith("blk."))
    if not options.values_only:
        turn_residual(t, layers)
    rows = t["blk.0.attn_output.weight"].shape[1]
    head = rows // int(reader.fields[key].contents())
    if head & (head - 1):
        parser.error(f"{options.model}: heads have {head} channels, expected a power of two")
    turn_values(t, layers, head)

    writer = gguf.GGUFWriter(options.out + ".tmp", "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        of = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=of)
    for name, a in t.items():
        writer.add_tensor(name, np.ascontiguousarray(a.astype(np.float32 if a.ndim == 1 else np.float16)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(options.out + ".tmp", options.out)


if __name__ == "__main__":
    main()

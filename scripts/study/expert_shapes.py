"""Writes a GGUF file with the shape of a published mixture of experts and random weights, by the gguf package. Other
programs can read it too, so speeds can be compared on one file:

    python3 scripts/study/expert_shapes.py qwen3-30b-a3b:q4_k /tmp/q.gguf

A shape is cut to a few layers (deepseek-v2-lite: to fewer experts, because some programs recognise it by its number of
layers). The formats are q4_0, q4_k and mxfp4; the latter stores only experts in it, and other matrices in q8_0. The
embedding is large against the layers, so that the token decides which experts are chosen, nearly uniformly.
"""
import argparse

import gguf
import numpy as np

from recurrent_shapes import attention, feed, head_norms

KINDS = gguf.GGMLQuantizationType
# Columns and bytes of a block, and the standard deviation of a weight if all bytes but the scales are random.
FORMATS = {"q4_0": (KINDS.Q4_0, 32, 18, 4.6), "q4_k": (KINDS.Q4_K, 256, 144, 210), "mxfp4": (KINDS.MXFP4, 32, 17, 2.9),
           "q8_0": (KINDS.Q8_0, 32, 34, 74)}


def experts(c):
    e, ffn, dim = c["experts"], c["expert_ffn"], c["dim"]
    return {"ffn_norm.weight": [dim], "ffn_gate_inp.weight": [e, dim], "ffn_gate_exps.weight": [e, ffn, dim],
            "ffn_up_exps.weight": [e, ffn, dim], "ffn_down_exps.weight": [e, dim, ffn]}


def shared(c):
    ffn, dim = c["expert_ffn"] * c["shared"], c["dim"]
    return {"ffn_gate_shexp.weight": [ffn, dim], "ffn_up_shexp.weight": [ffn, dim], "ffn_down_shexp.weight": [dim, ffn]}


def olmoe_layer(i, c):
    norms = {"attn_norm.weight": [c["dim"]], "attn_q_norm.weight": [c["dim"]], "attn_k_norm.weight": [c["dim"]]}
    return {**norms, **attention(c), **experts(c)}


def qwen3moe_layer(i, c):
    return {"attn_norm.weight": [c["dim"]], **head_norms(c), **attention(c), **experts(c)}


def gpt_oss_layer(i, c):
    layer = {"attn_norm.weight": [c["dim"]], **attention(c), **experts(c)}
    layer["post_attention_norm.weight"] = layer.pop("ffn_norm.weight")
    biases = {name.replace("weight", "bias"): shape[:-1] for name, shape in layer.items() if "norm" not in name}
    return {**layer, **biases, "attn_sinks.weight": [c["heads"]]}


def glm4moe_layer(i, c):
    layer = {"attn_norm.weight": [c["dim"]], **attention(c), "post_attention_norm.weight": [c["dim"]]}
    layer |= {f"attn_{x}.bias": layer[f"attn_{x}.weight"][:1] for x in "qkv"}
    if i < c["dense"]:
        return {**layer, **feed(c)}
    chosen = {**experts(c), **shared(c), "exp_probs_b.bias": [c["experts"]]}
    del chosen["ffn_norm.weight"]
    return {**layer, **chosen}


def deepseek2_layer(i, c):
    heads, rank, rope, nope, value = c["heads"], c["rank"], c["rope"], c["nope"], c["value"]
    layer = {"attn_norm.weight": [c["dim"]], "attn_q.weight": [heads * (nope + rope), c["dim"]],
             "attn_kv_a_mqa.weight": [rank + rope, c["dim"]], "attn_kv_a_norm.weight": [rank],
             "attn_output.weight": [c["dim"], heads * value]}
    if c["whole"]:
        layer["attn_kv_b.weight"] = [heads * (nope + value), rank]
    else:
        layer |= {"attn_k_b.weight": [heads, rank, nope], "attn_v_b.weight": [heads, value, rank]}
    if i < c["dense"]:
        return {**layer, "ffn_norm.weight": [c["dim"]], **feed(c)}
    return {**layer, **experts(c), **shared(c)}


# As in engine/passes/random_model.cpp, but for the number of layers or experts.
DEEPSEEK = dict(dim=2048, layers=27, ffn=10944, vocab=102400, context=163840, heads=16, experts=16, chosen=6, expert_ffn=1408,
                dense=1, shared=2, rank=512, rope=64, nope=128, value=128, whole=False)
SHAPES = {
    "olmoe-1b-7b": ("olmoe", olmoe_layer, dict(dim=2048, layers=16, ffn=1024, vocab=50304, context=4096, heads=16,
                                               kv_heads=16, head_dim=128, experts=64, chosen=8, expert_ffn=1024)),
    "qwen3-30b-a3b": ("qwen3moe", qwen3moe_layer, dict(dim=2048, layers=6, ffn=6144, vocab=151936, context=40960, heads=32,
                                                       kv_heads=4, head_dim=128, experts=128, chosen=8, expert_ffn=768)),
    "gpt-oss-20b": ("gpt-oss", gpt_oss_layer, dict(dim=2880, layers=6, ffn=2880, vocab=201088, context=131072, heads=64,
                                                   kv_heads=8, head_dim=64, experts=32, chosen=4, expert_ffn=2880)),
    "glm-4.5-air": ("glm4moe", glm4moe_layer, dict(dim=4096, layers=3, ffn=10944, vocab=151552, context=131072, heads=96,
                                                   kv_heads=8, head_dim=128, experts=128, chosen=8, expert_ffn=1408, dense=1,
                                                   shared=1)),
    "deepseek-v2-lite": ("deepseek2", deepseek2_layer, DEEPSEEK),
    "deepseek-v2-lite-kv_b": ("deepseek2", deepseek2_layer, {**DEEPSEEK, "whole": True}),  # as files were until 2025
}


def write_keys(w, arch, c):
    w.add_embedding_length(c["dim"]), w.add_block_count(c["layers"]), w.add_vocab_size(c["vocab"])
    w.add_context_length(c["context"]), w.add_feed_forward_length(c["ffn"]), w.add_layer_norm_rms_eps(1e-5)
    w.add_head_count(c["heads"]), w.add_rope_freq_base(1e6)
    w.add_expert_count(c["experts"]), w.add_expert_used_count(c["chosen"])
    if arch != "olmoe":
        w.add_expert_feed_forward_length(c["expert_ffn"])
    if "dense" in c:
        w.add_leading_dense_block_count(c["dense"]), w.add_expert_shared_count(c["shared"])
        w.add_expert_weights_scale(1), w.add_expert_weights_norm(arch == "glm4moe")
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if arch == "glm4moe" else gguf.ExpertGatingFuncType.SOFTMAX)
    if arch == "gpt-oss":
        w.add_sliding_window(128)
    if arch == "deepseek2":
        w.add_rope_dimension_count(c["rope"]), w.add_kv_lora_rank(c["rank"])
        if c["whole"]:
            w.add_head_count_kv(c["heads"]), w.add_key_length(c["nope"] + c["rope"]), w.add_value_length(c["value"])
        else:
            w.add_head_count_kv(1), w.add_key_length(c["rank"] + c["rope"]), w.add_value_length(c["rank"])
            w.add_key_length_mla(c["nope"] + c["rope"]), w.add_value_length_mla(c["value"])
    else:
        w.add_head_count_kv(c["kv_heads"]), w.add_key_length(c["head_dim"]), w.add_value_length(c["head_dim"])
        w.add_rope_dimension_count(c["head_dim"] // 2 if arch == "glm4moe" else c["head_dim"])


def tensor(name, shape, format_name, random):
    """The numbers or blocks of a tensor, and its type if it has blocks."""
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32), None
    if len(shape) < 2 or "ffn_gate_inp" in name or name.endswith("bias"):
        return (random.standard_normal(shape) * .02).astype(np.float32), None
    if format_name == "mxfp4" and "_exps" not in name:
        format_name = "q8_0"
    if format_name == "q4_k" and shape[-1] % 256:
        format_name = "q4_0"
    kind, columns, size, spread = FORMATS[format_name]
    scale = shape[-1] ** -.5 / spread * (400 if name.startswith("token_embd") else 1)
    blocks = random.integers(0, 256, (*shape[:-1], shape[-1] // columns, size), np.uint8)
    if format_name == "q4_0":
        # Codes of 1 to 15: their mean is 8, the code of 0. Otherwise all tokens become alike and choose the same experts.
        blocks[(blocks & 15) == 0] |= 8
        blocks[blocks < 16] |= 128
    if format_name == "mxfp4":
        blocks[..., 0] = 127 + round(np.log2(scale))
    else:
        blocks[..., :2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    if format_name == "q4_k":  # codes have the mean 7.5
        blocks[..., 2:4] = np.frombuffer(np.float16(scale * 7.5).tobytes(), np.uint8)
    return blocks.reshape(*shape[:-1], -1), kind


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", help=f"SHAPE:FORMAT; shapes: {', '.join(SHAPES)}; formats: q4_0, q4_k, mxfp4"), p.add_argument("file")
    p.add_argument("--layers", type=int, help="number of layers (default: as cut here)")
    o = p.parse_args()
    shape, _, format_name = o.shape.partition(":")
    if shape not in SHAPES or format_name not in FORMATS:
        p.error(f"{o.shape} is no shape and format")
    arch, layer, c = SHAPES[shape]
    c["layers"] = o.layers or c["layers"]
    w = gguf.GGUFWriter(o.file, arch)
    w.add_name(f"{shape}, random weights"), w.add_tokenizer_model("no_vocab")
    write_keys(w, arch, c)
    tensors = {"token_embd.weight": [c["vocab"], c["dim"]], "output.weight": [c["vocab"], c["dim"]],
               "output_norm.weight": [c["dim"]]}
    for i in range(c["layers"]):
        tensors |= {f"blk.{i}.{name}": shape for name, shape in layer(i, c).items()}
    random = np.random.default_rng(1)
    for name, shape in tensors.items():
        x, kind = tensor(name, shape, format_name, random)
        w.add_tensor(name, x, raw_dtype=kind)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()

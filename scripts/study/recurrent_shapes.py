"""Writes a GGUF file with the shape of a published recurrent model and random q4_0 weights, by the gguf package.
Other programs can read it too, so speeds can be compared on one file:

    python3 scripts/study/recurrent_shapes.py qwen3.5-0.8b /tmp/q.gguf [--tokenizer qwen2.5.gguf]

--tokenizer copies the tokenizer and chat template of another GGUF file, and with it the number of tokens. The
embedding is large against the layers, so that the text repeats itself as an edited text does.
"""
import argparse

import gguf
import numpy as np

Q4_0 = gguf.GGMLQuantizationType.Q4_0


def mamba2_layer(i, c):
    inner, conv = c["inner"], c["inner"] + 2 * c["groups"] * c["states"]
    return {"attn_norm.weight": [c["dim"]], "ssm_in.weight": [inner + conv + c["steps"], c["dim"]],
            "ssm_conv1d.weight": [conv, 4], "ssm_conv1d.bias": [conv], "ssm_dt.bias": [c["steps"]],
            "ssm_a": [c["steps"], 1], "ssm_d": [c["steps"], 1], "ssm_norm.weight": [c["groups"], inner // c["groups"]],
            "ssm_out.weight": [c["dim"], inner]}


def mamba_layer(i, c):
    return {"attn_norm.weight": [c["dim"]], "ssm_in.weight": [2 * c["inner"], c["dim"]],
            "ssm_conv1d.weight": [c["inner"], 4], "ssm_conv1d.bias": [c["inner"]],
            "ssm_x.weight": [c["steps"] + 2 * c["states"], c["inner"]], "ssm_dt.weight": [c["inner"], c["steps"]],
            "ssm_dt.bias": [c["inner"]], "ssm_a": [c["inner"], c["states"]], "ssm_d": [c["inner"]],
            "ssm_out.weight": [c["dim"], c["inner"]]}


def attention(c, gated=False):
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    return {"attn_q.weight": [2 * q if gated else q, c["dim"]], "attn_k.weight": [kv, c["dim"]],
            "attn_v.weight": [kv, c["dim"]], "attn_output.weight": [c["dim"], q]}


def feed(c):
    return {"ffn_gate.weight": [c["ffn"], c["dim"]], "ffn_up.weight": [c["ffn"], c["dim"]],
            "ffn_down.weight": [c["dim"], c["ffn"]]}


def head_norms(c):
    return {"attn_q_norm.weight": [c["head_dim"]], "attn_k_norm.weight": [c["head_dim"]]}


def qwen35_layer(i, c):
    keys = 2 * c["groups"] * c["states"]
    shared = {"attn_norm.weight": [c["dim"]], "post_attention_norm.weight": [c["dim"]], **feed(c)}
    if (i + 1) % 4 == 0:
        return {**shared, **attention(c, True), **head_norms(c)}
    return {**shared, "attn_qkv.weight": [keys + c["inner"], c["dim"]], "attn_gate.weight": [c["inner"], c["dim"]],
            "ssm_conv1d.weight": [keys + c["inner"], 4], "ssm_dt.bias": [c["steps"]], "ssm_a": [c["steps"]],
            "ssm_alpha.weight": [c["steps"], c["dim"]], "ssm_beta.weight": [c["steps"], c["dim"]],
            "ssm_norm.weight": [c["inner"] // c["steps"]], "ssm_out.weight": [c["dim"], c["inner"]]}


def lfm2_layer(i, c):
    shared = {"attn_norm.weight": [c["dim"]], "ffn_norm.weight": [c["dim"]], **feed(c)}
    if c["attends"][i % len(c["attends"])] == "1":
        return {**shared, **attention(c), **head_norms(c)}
    return {**shared, "shortconv.conv.weight": [c["dim"], 3], "shortconv.in_proj.weight": [3 * c["dim"], c["dim"]],
            "shortconv.out_proj.weight": [c["dim"], c["dim"]]}


def granite_layer(i, c):
    e, wide = c["experts"], c["shared"]
    attends = c["attends"][i % len(c["attends"])] == "1"
    mixer = {"attn_norm.weight": [c["dim"]], **attention(c)} if attends else mamba2_layer(i, c)
    return {**mixer, "ffn_norm.weight": [c["dim"]], "ffn_gate_inp.weight": [e, c["dim"]],
            "ffn_gate_exps.weight": [e, c["ffn"], c["dim"]], "ffn_up_exps.weight": [e, c["ffn"], c["dim"]],
            "ffn_down_exps.weight": [e, c["dim"], c["ffn"]], "ffn_gate_shexp.weight": [wide, c["dim"]],
            "ffn_up_shexp.weight": [wide, c["dim"]], "ffn_down_shexp.weight": [c["dim"], wide]}


# As in engine/passes/random_model.cpp.
SHAPES = {
    "mamba-1.4b": ("mamba", mamba_layer, dict(dim=2048, layers=48, ffn=0, vocab=50280, context=1 << 20, heads=0, inner=4096,
                                              states=16, steps=128)),
    "mamba2-1.3b": ("mamba2", mamba2_layer, dict(dim=2048, layers=48, ffn=0, vocab=50288, context=1 << 20, heads=0,
                                                 inner=4096, states=128, steps=64, groups=1)),
    "qwen3.5-0.8b": ("qwen35", qwen35_layer, dict(dim=1024, layers=24, ffn=3584, vocab=248320, context=262144, heads=8,
                                                  kv_heads=2, head_dim=256, inner=2048, states=128, steps=16, groups=16)),
    "qwen3.5-4b": ("qwen35", qwen35_layer, dict(dim=2560, layers=32, ffn=9216, vocab=248320, context=262144, heads=16,
                                                kv_heads=4, head_dim=256, inner=4096, states=128, steps=32, groups=16)),
    "lfm2-1.2b": ("lfm2", lfm2_layer, dict(dim=2048, layers=16, ffn=8192, vocab=65536, context=128000, heads=32,
                                           kv_heads=8, head_dim=64, attends="0010010010101010")),
    "granite-4-h-tiny": ("granitehybrid", granite_layer,
                         dict(dim=1536, layers=12, ffn=512, vocab=100352, context=131072, heads=12, kv_heads=4, head_dim=128,
                              inner=3072, states=128, steps=48, groups=1, experts=64, shared=1024, attends="0000010000")),
}


def write_keys(w, arch, c):
    w.add_embedding_length(c["dim"]), w.add_block_count(c["layers"]), w.add_vocab_size(c["vocab"])
    w.add_context_length(c["context"]), w.add_head_count(c["heads"]), w.add_feed_forward_length(c["ffn"])
    w.add_layer_norm_rms_eps(1e-5)
    if "attends" in c:
        w.add_head_count_kv([c["kv_heads"] if c["attends"][i % len(c["attends"])] == "1" else 0 for i in range(c["layers"])])
    elif "kv_heads" in c:
        w.add_head_count_kv(c["kv_heads"])
    if "head_dim" in c:
        w.add_key_length(c["head_dim"]), w.add_value_length(c["head_dim"])
        w.add_rope_dimension_count(64 if arch == "qwen35" else c["head_dim"]), w.add_rope_freq_base(1e6)
    if arch == "qwen35":
        w.add_rope_dimension_sections([11, 11, 10, 0]), w.add_uint32("qwen35.full_attention_interval", 4)
    if arch == "lfm2":
        w.add_shortconv_l_cache(3)
    else:
        w.add_ssm_conv_kernel(4), w.add_ssm_inner_size(c["inner"]), w.add_ssm_state_size(c["states"])
        w.add_ssm_time_step_rank(c["steps"])
    if "groups" in c:
        w.add_ssm_group_count(c["groups"])
    if arch == "granitehybrid":
        w.add_expert_count(c["experts"]), w.add_expert_used_count(6), w.add_expert_shared_feed_forward_length(c["shared"])
        w.add_float32("granitehybrid.logit_scale", 1), w.add_float32("granitehybrid.embedding_scale", 1)
        w.add_float32("granitehybrid.residual_scale", 1), w.add_float32("granitehybrid.attention.scale", c["head_dim"] ** -.5)


def tensor(name, shape, random):
    if name.endswith("ssm_a"):
        return -random.uniform(.5, 2, shape).astype(np.float32)
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    if len(shape) < 2 or shape[-1] % 32 or "ffn_gate_inp" in name:
        return (random.standard_normal(shape) * (.5 if "conv" in name else .02)).astype(np.float32)
    # A block: an f16 scale, then 32 codes of 4 bits. A code has a spread of 4.6.
    scale = np.float16(shape[-1] ** -.5 / 4.6 * (20 if name.startswith("token_embd") else 1))
    blocks = random.integers(0, 256, (*shape[:-1], shape[-1] // 32, 18), np.uint8)
    blocks[..., :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES), p.add_argument("file"), p.add_argument("--tokenizer")
    o = p.parse_args()
    arch, layer, c = SHAPES[o.shape]
    w = gguf.GGUFWriter(o.file, arch)
    w.add_name(o.shape + ", random weights")
    if o.tokenizer:
        for name, field in gguf.GGUFReader(o.tokenizer).fields.items():
            if name.startswith("tokenizer."):
                kinds = field.types
                w.add_key_value(name, field.contents(), kinds[0], kinds[1] if len(kinds) > 1 else None)
                if name == "tokenizer.ggml.tokens":
                    c["vocab"] = len(field.data)
    else:
        w.add_tokenizer_model("no_vocab")
    write_keys(w, arch, c)
    tensors = {"token_embd.weight": [c["vocab"], c["dim"]]}
    tensors["token_embd_norm.weight" if arch == "lfm2" else "output_norm.weight"] = [c["dim"]]
    for i in range(c["layers"]):
        tensors |= {f"blk.{i}.{name}": shape for name, shape in layer(i, c).items()}
    random = np.random.default_rng(1)
    for name, shape in tensors.items():
        x = tensor(name, shape, random)
        w.add_tensor(name, x, raw_dtype=Q4_0 if x.dtype == np.uint8 else None)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()

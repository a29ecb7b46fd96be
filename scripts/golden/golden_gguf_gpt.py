"""GPT-2's relatives, and other models with q, k and v in one tensor, as GGUF in the form of llama.cpp's converters.

The gguf package maps Hugging Face names to its own names of tensors and keys. CONVERTERS lists the changes that a converter
makes to the numbers. This code is independent of chaski's exporter, so each checks the other.
"""

import gguf
import numpy as np

ARCH = gguf.MODEL_ARCH


def first(c, *names):
    return next(c[n] for n in names if c.get(n) is not None)


def heads_of(c):
    return first(c, "num_attention_heads", "n_head", "n_heads")


def hidden_of(c):
    return first(c, "hidden_size", "n_embd", "d_model")


def layers_of(c):
    return first(c, "num_hidden_layers", "n_layer", "n_layers")


def interleaved(w, heads):
    """Reorders rows from halves of a head to neighbouring rotary pairs."""
    rows, rest = w.shape[0], w.shape[1:]
    return w.reshape(heads, 2, rows // heads // 2, *rest).swapaxes(1, 2).reshape(rows, *rest)


def apart(w, c, kv_heads):
    """Reorders rows from (q, k, v of a group), group after group, to all of q, all of k, all of v."""
    heads, rest = heads_of(c), w.shape[1:]
    dim = hidden_of(c) // heads
    w = w.reshape(kv_heads, heads // kv_heads + 2, dim, *rest)
    return [part.reshape(-1, *rest) for part in (w[:, :-2], w[:, -2], w[:, -1])]


# The converters of a tensor. Each returns one or more pairs (name to look up, numbers).

def as_is(name, w, c):
    yield name, w


def per_head(name, w, c):
    yield name, np.concatenate(apart(w, c, heads_of(c))) if "query_key_value" in name else w


def per_group(name, w, c):
    kv_heads = c.get("num_kv_heads") or 1
    yield name, np.concatenate(apart(w, c, kv_heads)) if "query_key_value" in name else w


def three(name, parts, c, fused, kv_heads):
    q, k, v = parts
    layer = name.split(fused)[0]
    yield layer + "self_attn.q_proj.weight", interleaved(q, heads_of(c))
    yield layer + "self_attn.k_proj.weight", interleaved(k, kv_heads)
    yield layer + "self_attn.v_proj.weight", v


def baichuan(name, w, c):
    if "W_pack" in name:
        return three(name, np.split(w, 3), c, "self_attn", heads_of(c))
    if name == "lm_head.weight" and "z_loss_weight" in c:
        w = w / np.linalg.norm(w, axis=1, keepdims=True)
    return as_is(name, w, c)


def internlm2(name, w, c):
    kv_heads = c["num_key_value_heads"]
    if "wqkv" in name:
        return three(name, apart(w, c, kv_heads), c, "attention.wqkv", kv_heads)
    return as_is(name, w, c)


def permuted(name, w, c):
    if "q_proj" in name:
        w = interleaved(w, heads_of(c))
    if "k_proj" in name:
        w = interleaved(w, c["num_key_value_heads"])
    yield name, w


def plus_one(name, w, c):
    yield name, w + 1 if name.endswith("norm.weight") else w


# Keys in addition to the common ones.

def neox_keys(writer, c):
    writer.add_rope_dimension_count(int(c["rotary_pct"] * (hidden_of(c) // heads_of(c))))
    writer.add_parallel_residual(c["use_parallel_residual"])
    writer.add_layer_norm_eps(c["layer_norm_eps"])


def falcon_keys(writer, c):
    writer.add_tensor_data_layout("jploski")
    writer.add_head_count_kv(c.get("num_kv_heads") or 1)
    writer.add_layer_norm_eps(c["layer_norm_epsilon"])


def bloom_keys(writer, c):
    writer.add_head_count_kv(heads_of(c))
    writer.add_layer_norm_eps(c["layer_norm_epsilon"])


def mpt_keys(writer, c):
    writer.add_layer_norm_eps(1e-5)
    writer.add_clamp_kqv(c["attn_config"]["clip_qkv"])
    writer.add_max_alibi_bias(c["attn_config"]["alibi_bias_max"])


def starcoder_keys(writer, c):
    writer.add_head_count_kv(1)
    writer.add_layer_norm_eps(c["layer_norm_epsilon"])


def codeshell_keys(writer, c):
    writer.add_head_count_kv(c["num_query_groups"])
    writer.add_layer_norm_eps(c["layer_norm_epsilon"])
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(1.0)


def llama_keys(writer, c):
    writer.add_head_count_kv(c.get("num_key_value_heads", heads_of(c)))
    if "rope_theta" in c:
        writer.add_rope_freq_base(c["rope_theta"])
    if "rms_norm_eps" in c:
        writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    if "head_dim" in c:
        writer.add_key_length(c["head_dim"])
        writer.add_value_length(c["head_dim"])


def olmo_keys(writer, c):
    llama_keys(writer, c)
    writer.add_layer_norm_eps(1e-5)
    writer.add_clamp_kqv(c["clip_qkv"])


def nemotron_keys(writer, c):
    llama_keys(writer, c)
    writer.add_layer_norm_eps(c["norm_eps"])
    writer.add_rope_dimension_count(int(c["partial_rotary_factor"] * hidden_of(c)) // heads_of(c))
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)


def hunyuan_keys(writer, c):
    dim = c["head_dim"]
    theta = c["rope_theta"] * c["rope_scaling"]["alpha"] ** (dim / (dim - 2))
    llama_keys(writer, {k: v for k, v in c.items() if k != "rope_theta"})
    writer.add_rope_freq_base(theta)
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_rope_scaling_factor(1)


# model_type: (architecture, converter of tensors, keys of its own)
CONVERTERS = {
    "gpt_neox": (ARCH.GPTNEOX, per_head, neox_keys),
    "falcon": (ARCH.FALCON, per_group, falcon_keys),
    "bloom": (ARCH.BLOOM, per_head, bloom_keys),
    "mpt": (ARCH.MPT, as_is, mpt_keys),
    "gpt_bigcode": (ARCH.STARCODER, as_is, starcoder_keys),
    "codeshell": (ARCH.CODESHELL, as_is, codeshell_keys),
    "baichuan": (ARCH.BAICHUAN, baichuan, llama_keys),
    "internlm2": (ARCH.INTERNLM2, internlm2, llama_keys),
    "olmo": (ARCH.OLMO, permuted, olmo_keys),
    "nemotron": (ARCH.NEMOTRON, plus_one, nemotron_keys),
    "arcee": (ARCH.ARCEE, permuted, llama_keys),
    "seed_oss": (ARCH.SEED_OSS, as_is, llama_keys),
    "hunyuan_v1_dense": (ARCH.HUNYUAN_DENSE, as_is, hunyuan_keys),
    "ernie4_5": (ARCH.ERNIE4_5, as_is, llama_keys),
}


PREFIX = {ARCH.BLOOM: "transformer."}  # the prefix that its converter removes


def write_gguf(path, config, weights):
    arch, convert, own_keys = CONVERTERS[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    writer.add_context_length(first(config, "max_position_embeddings", "n_positions", "seq_length", "max_seq_len",
                                    "model_max_length") if config["model_type"] != "falcon" else 2048)
    writer.add_embedding_length(hidden_of(config))
    writer.add_block_count(layers_of(config))
    writer.add_feed_forward_length(config.get("intermediate_size") or config.get("n_inner") or 4 * hidden_of(config))
    writer.add_head_count(heads_of(config))
    own_keys(writer, config)
    names = gguf.get_tensor_name_map(arch, layers_of(config))
    for name, tensor in weights.items():
        for looked_up, w in convert(name, tensor.float().numpy(), config):
            theirs = names.get_name(looked_up.removeprefix(PREFIX.get(arch, "")), try_suffixes=(".weight", ".bias"))
            assert theirs, f"{looked_up} has no name in a {gguf.MODEL_ARCH_NAMES[arch]} file"
            writer.add_tensor(theirs, np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

"""The tiny random models as GGUF, in the form of llama.cpp's converters.

The gguf package maps Hugging Face names to its own names of tensors and keys. FAMILIES lists the changes that a converter
makes to the numbers. This code is independent of chaski's exporter, so each checks the other.
"""

import math
import statistics

import gguf
import numpy as np
import torch

import golden_experts

ARCH = gguf.MODEL_ARCH


def stablelm(writer, c):
    writer.add_parallel_residual(c.get("use_parallel_residual", False))


def starcoder2(writer, c):
    writer.add_layer_norm_eps(c["norm_epsilon"])


def phi3(writer, c):
    rope = c["rope_scaling"]
    if rope:
        stretch, original = c["max_position_embeddings"], c["original_max_position_embeddings"]
        stretch /= original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(original)))
        for kind in ("long", "short"):
            writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))


def gemma2(writer, c):
    writer.add_attn_logit_softcapping(c["attn_logit_softcapping"])
    writer.add_final_logit_softcapping(c["final_logit_softcapping"])
    writer.add_attention_scale(c["query_pre_attn_scalar"] ** -0.5)


def gemma3(writer, c):
    writer.add_rope_freq_base_swa(c["rope_local_base_freq"])
    writer.add_sliding_window_pattern(3)
    writer.add_attention_scale(c["query_pre_attn_scalar"] ** -0.5)


def gemma3n(writer, c):
    quantile = statistics.NormalDist().inv_cdf
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c["layer_types"]])
    writer.add_rope_freq_base_swa(c["rope_local_base_freq"])
    writer.add_shared_kv_layers(c["num_kv_shared_layers"])
    writer.add_embedding_length_per_layer_input(c["hidden_size_per_layer_input"])
    writer.add_altup_num_inputs(c["altup_num_inputs"])
    writer.add_altup_active_idx(c["altup_active_idx"])
    writer.add_final_logit_softcapping(c["final_logit_softcapping"])
    writer.add_activation_sparsity_scale([quantile(p) if p else -math.inf for p in c["activation_sparsity_pattern"]])


def gemma3n_weights(weights, c):
    """Stacks the matrices of the streams, and adds zero rows for tokens without a per-layer input."""
    stacked = {}
    for kind in ("altup_projections", "altup_unembed_projections"):
        names = [f"model.{kind}.{i}.weight" for i in range(c["altup_num_inputs"] - 1)]
        stacked[f"model.{kind}.weight"] = torch.stack([weights[n] for n in names])
        weights = {k: w for k, w in weights.items() if k not in names}
    table = weights["model.embed_tokens_per_layer.weight"]
    stacked["model.embed_tokens_per_layer.weight"] = torch.nn.functional.pad(
        table, (0, 0, 0, c["vocab_size"] - len(table)))
    return weights | stacked


def gemma4(writer, c):
    windows = [kind == "sliding_attention" for kind in c["layer_types"]]
    own = list(c.get("per_layer_config", {}).values())  # of layers without a window; all have the same
    c = c | ({"global_head_dim": own[0]["head_dim"], "num_global_key_value_heads": own[0]["num_key_value_heads"]} if own else {})
    full, near, layers = c["global_head_dim"], c["head_dim"], c["num_hidden_layers"]
    ropes, readers = c["rope_parameters"], c["num_kv_shared_layers"]
    if c.get("enable_moe_block"):
        golden_experts.add_keys(writer, c | {"num_experts_per_tok": c["top_k_experts"]})
    writer.add_sliding_window_pattern(windows)
    writer.add_shared_kv_layers(readers)
    writer.add_embedding_length_per_layer_input(c["hidden_size_per_layer_input"])
    writer.add_final_logit_softcapping(c["final_logit_softcapping"])
    writer.add_key_length(full), writer.add_value_length(full), writer.add_rope_dimension_count(full)
    writer.add_key_length_swa(near), writer.add_value_length_swa(near), writer.add_rope_dimension_count_swa(near)
    writer.add_rope_freq_base(ropes["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    if c["use_double_wide_mlp"]:
        writer.add_feed_forward_length([c["intermediate_size"] * (2 if i >= layers - readers else 1) for i in range(layers)])
    if "num_global_key_value_heads" in c:
        writer.add_head_count_kv([c["num_key_value_heads" if w else "num_global_key_value_heads"] for w in windows])
    turned = int(full * ropes["full_attention"]["partial_rotary_factor"] / 2)
    writer.add_tensor("rope_freqs.weight", np.array([1.0] * turned + [1e30] * (full // 2 - turned), np.float32))


def mistral3(writer, c):
    writer.add_rope_scaling_yarn_beta_fast(c["rope_parameters"]["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(c["rope_parameters"]["beta_slow"])
    writer.add_rope_scaling_yarn_log_mul(c["rope_parameters"]["mscale_all_dim"])
    writer.add_attn_temperature_scale(c["rope_parameters"]["llama_4_scaling_beta"])


def granite(writer, c):
    writer.add_embedding_scale(c["embedding_multiplier"])
    writer.add_attention_scale(c["attention_multiplier"])
    writer.add_residual_scale(c["residual_multiplier"])
    writer.add_logit_scale(c["logits_scaling"])


def granitemoe(writer, c):
    granite(writer, c)
    golden_experts.add_keys(writer, c)


def gpt_oss(writer, c):
    golden_experts.add_keys(writer, c)
    writer.add_expert_feed_forward_length(c["intermediate_size"])


def phimoe(writer, c):
    rope = c["rope_scaling"]
    golden_experts.add_keys(writer, c)
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_attn_factors(rope["short_mscale"])
    for kind in ("long", "short"):
        writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))


def llama4(writer, c):
    golden_experts.add_keys(writer, c)
    writer.add_feed_forward_length(c["intermediate_size_mlp"])
    writer.add_expert_feed_forward_length(c["intermediate_size"])
    writer.add_interleave_moe_layer_step(c["interleave_moe_layer_step"])
    writer.add_sliding_window(c["attention_chunk_size"])
    writer.add_attn_temperature_scale(c["attn_scale"])
    writer.add_attn_temperature_length(c["floor_scale"])


def dbrx_config(c):
    """DBRX's numbers under the names of other models."""
    attention, ffn = c["attn_config"], c["ffn_config"]
    return c | {"max_position_embeddings": c["max_seq_len"], "hidden_size": c["d_model"], "num_hidden_layers": c["n_layers"],
                "intermediate_size": ffn["ffn_hidden_size"], "num_attention_heads": c["n_heads"],
                "num_key_value_heads": attention["kv_n_heads"], "rope_theta": attention["rope_theta"],
                "layer_norm_eps": 1e-5, "num_experts": ffn["moe_num_experts"], "num_experts_per_tok": ffn["moe_top_k"]}


def dbrx(writer, c):
    golden_experts.add_keys(writer, c)
    writer.add_clamp_kqv(c["attn_config"]["clip_qkv"])


def cohere(writer, c):
    writer.add_logit_scale(c["logit_scale"])


def exaone4(writer, c):
    if c["sliding_window"]:
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c["layer_types"]])


def minicpm(writer, c):
    writer.add_embedding_scale(c["scale_emb"])
    writer.add_residual_scale(c["scale_depth"] / math.sqrt(c["num_hidden_layers"]))
    writer.add_logit_scale(c["hidden_size"] / c["dim_model_base"])


def bitnet(writer, c):
    if c["hidden_act"] != "silu":
        writer.add_string("bitnet.hidden_activation", c["hidden_act"])


def bitnet_weights(weights):
    """Renames tensors to names that the package knows, and rounds float matrices to -1, 0 and 1 times a scale."""
    named = {}
    for name, w in weights.items():
        if name.endswith("_proj.weight") and name + "_scale" not in weights:
            scale = w.float().abs().mean()
            w = (w.float() / scale).round().clamp(-1, 1) * scale
        name = name.replace("attn_sub_norm", "inner_attn_ln").replace("ffn_sub_norm", "ffn_layernorm")
        named[name] = w
    return named


# model_type: (architecture, q and k interleaved, 1 is added to norms, keys of its own)
FAMILIES = {
    "qwen2": (ARCH.QWEN2, False, False, None),
    "stablelm": (ARCH.STABLELM, False, False, stablelm),
    "starcoder2": (ARCH.STARCODER2, False, False, starcoder2),
    "phi": (ARCH.PHI2, False, False, None),
    "olmo2": (ARCH.OLMO2, False, False, None),
    "smollm3": (ARCH.SMOLLM3, True, False, None),
    "phi3": (ARCH.PHI3, False, False, phi3),
    "gemma": (ARCH.GEMMA, False, True, None),
    "gemma2": (ARCH.GEMMA2, False, True, gemma2),
    "gemma3_text": (ARCH.GEMMA3, False, True, gemma3),
    "gemma3n_text": (ARCH.GEMMA3N, False, False, gemma3n),
    "gemma4_text": (ARCH.GEMMA4, False, False, gemma4),
    "qwen3": (ARCH.QWEN3, False, False, None),
    "ministral3": (ARCH.MISTRAL3, True, False, mistral3),
    "granite": (ARCH.GRANITE, True, False, granite),
    "cohere": (ARCH.COMMAND_R, False, False, cohere),
    "cohere2": (ARCH.COHERE2, False, False, cohere),
    "glm4": (ARCH.GLM4, False, False, None),
    "chatglm": (ARCH.CHATGLM, False, False, None),
    "exaone4": (ARCH.EXAONE4, False, False, exaone4),
    "exaone": (ARCH.EXAONE, False, False, None),
    "minicpm": (ARCH.MINICPM, True, False, minicpm),
    "bitnet": (ARCH.BITNET, False, False, bitnet),
    "qwen3_moe": (ARCH.QWEN3MOE, False, False, golden_experts.add_keys),
    "qwen2_moe": (ARCH.QWEN2MOE, False, False, golden_experts.add_keys),
    "mixtral": (ARCH.LLAMA, True, False, golden_experts.add_keys),
    "olmoe": (ARCH.OLMOE, False, False, golden_experts.add_keys),
    "dots1": (ARCH.DOTS1, False, False, golden_experts.dots1),
    "ernie4_5_moe": (ARCH.ERNIE4_5_MOE, False, False, golden_experts.ernie4_5_moe),
    "glm4_moe": (ARCH.GLM4_MOE, False, False, golden_experts.dots1),
    "minimax_m2": (ARCH.MINIMAXM2, False, False, golden_experts.minimax_m2),
    "exaone_moe": (ARCH.EXAONE_MOE, False, False, golden_experts.exaone_moe),
    "hunyuan_v1_moe": (ARCH.HUNYUAN_MOE, False, False, golden_experts.hunyuan_moe),
    "bailing_moe": (ARCH.BAILINGMOE2, False, False, golden_experts.bailingmoe2),
    "deepseek": (ARCH.DEEPSEEK, True, False, golden_experts.deepseek),
    "deepseek_v2": (ARCH.DEEPSEEK2, False, False, golden_experts.deepseek2),
    "deepseek_v3": (ARCH.DEEPSEEK2, False, False, golden_experts.deepseek2),
    "deepseek_v32": (ARCH.GLM_DSA, False, False, golden_experts.sparse),
    "glm_moe_dsa": (ARCH.GLM_DSA, False, False, golden_experts.sparse),
    "granitemoe": (ARCH.GRANITE_MOE, True, False, granitemoe),
    "gpt_oss": (ARCH.GPT_OSS, False, False, gpt_oss),
    "phimoe": (ARCH.PHIMOE, False, False, phimoe),
    "dbrx": (ARCH.DBRX, False, False, dbrx),
    "llama4_text": (ARCH.LLAMA4, False, False, llama4),
}


def permute(w, heads):
    """Reorders rows from halves of a head to neighbouring rotary pairs."""
    rows, rest = w.shape[0], w.shape[1:]
    return w.reshape(heads, 2, rows // heads // 2, *rest).swapaxes(1, 2).reshape(rows, *rest)


def add_keys(writer, c):
    heads, hidden = c["num_attention_heads"], c["hidden_size"]
    head_dim = c.get("head_dim") or hidden // heads
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(c.get("num_key_value_heads", heads))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if "rms_norm_eps" in c:
        writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    if "layer_norm_eps" in c:
        writer.add_layer_norm_eps(c["layer_norm_eps"])
    writer.add_rope_dimension_count(int(head_dim * c.get("partial_rotary_factor", 1)))
    rope = c.get("rope_scaling") or c.get("rope_parameters") or {}
    if "rope_theta" in rope or "rope_theta" in c:
        writer.add_rope_freq_base(rope.get("rope_theta") or c["rope_theta"])
    if c.get("sliding_window"):
        writer.add_sliding_window(c["sliding_window"])
    kind = rope.get("rope_type") or rope.get("type", "default")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def write_gguf(path, config, family, weights, kind_of=lambda name: None):
    """`config` is that of the transformers class, `weights` have the names of the model's own files. kind_of(name) returns
    the block format of a tensor that has one."""
    arch, interleaved, plus_one, own = FAMILIES[family]
    if family == "dbrx":
        config = dbrx_config(config)
    # The package has the tensors of DeepSeek V3.2, but not its name.
    writer = gguf.GGUFWriter(path, "deepseek32" if family == "deepseek_v32" else gguf.MODEL_ARCH_NAMES[arch])
    add_keys(writer, config)
    if own:
        own(writer, config)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config.get("num_key_value_heads")}
    if family == "gemma3n_text":
        weights = gemma3n_weights(weights, config)
    if family == "bitnet":
        weights = bitnet_weights(weights)
    if family == "gpt_oss":
        weights = golden_experts.gpt_oss_experts(weights)
    if family == "llama4_text":
        weights = golden_experts.llama4_experts(weights)
    if family == "dbrx":
        weights = golden_experts.dbrx_experts(weights, config["num_experts"])
    if family in golden_experts.PUBLISHED:
        weights = golden_experts.stacked(weights)
    if arch in (ARCH.DEEPSEEK2, ARCH.GLM_DSA):
        weights = golden_experts.with_matrices_of_heads(weights, config)
    for name, tensor in weights.items():
        w = tensor.float().numpy()
        if name.endswith((".router.scale", ".router.per_expert_scale")):
            kind = gguf.MODEL_TENSOR.FFN_DOWN_EXP if "per_expert" in name else gguf.MODEL_TENSOR.FFN_GATE_INP
            writer.add_tensor(gguf.TENSOR_NAMES[kind].format(bid=name.split(".")[2]) + ".scale", w)
            continue
        part = name.split(".")[-2]
        if interleaved and part in heads:
            w = permute(w, heads[part])
        if plus_one and w.ndim == 1:
            w = w + 1
        if family == "chatglm":
            name = name.removeprefix("transformer.")
        theirs = names.get_name(name.removesuffix("_scale"), try_suffixes=(".weight", ".bias"))
        assert theirs, f"{name} has no name in a {gguf.MODEL_ARCH_NAMES[arch]} file"
        if not theirs.endswith((".weight", ".bias")):
            theirs += ".weight"
        if name.endswith("_scale"):
            theirs = theirs.replace(".weight", ".scale")
        kind = kind_of(theirs)
        if kind:
            w = gguf.quants.quantize(w, kind)
        writer.add_tensor(theirs, np.ascontiguousarray(w), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

"""Mixtures of experts: config.json, and weights in the form of published files and of llama.cpp's converters.

transformers keeps the gates and ups of all experts of a layer in one tensor, and their downs in another. Most published files
have a tensor for each matrix of each expert.
"""

import re

import gguf
import torch

from golden_configs import ERNIE45, GEMMA4, GLM4, GRANITE, HUNYUAN_DENSE, LLAMA, MISTRAL, QWEN2, QWEN3

# Six experts, of which a token reads three: powers of two would hide a wrong order of rows.
QWEN3MOE = {k: v for k, v in QWEN3.items() if k not in ("max_window_layers", "tie_word_embeddings")} | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
}

QWEN2MOE = QWEN2 | {
    "architectures": ["Qwen2MoeForCausalLM"],
    "model_type": "qwen2_moe",
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "norm_topk_prob": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}

MIXTRAL = MISTRAL | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}

OLMOE = {k: v for k, v in LLAMA.items() if k != "mlp_bias"} | {
    "architectures": ["OlmoeForCausalLM"],
    "model_type": "olmoe",
    "intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "norm_topk_prob": False,
    "clip_qkv": None,
}

GRANITEMOE = {k: v for k, v in GRANITE.items() if k != "mlp_bias"} | {
    "architectures": ["GraniteMoeForCausalLM"],
    "model_type": "granitemoe",
    "intermediate_size": 16,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
}

DOTS1 = {k: v for k, v in QWEN3.items() if k not in ("max_window_layers", "tie_word_embeddings", "use_sliding_window")} | {
    "architectures": ["Dots1ForCausalLM"],
    "model_type": "dots1",
    "num_hidden_layers": 3,
    "intermediate_size": 48,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}

ERNIE45MOE = ERNIE45 | {
    "architectures": ["Ernie4_5_MoeForCausalLM"],
    "model_type": "ernie4_5_moe",
    "num_hidden_layers": 3,
    "moe_num_experts": 6,
    "moe_k": 3,
    "moe_num_shared_experts": 2,
    "moe_intermediate_size": 16,
    "moe_layer_start_index": 1,
    "moe_layer_end_index": -1,
    "moe_layer_interval": 1,
}

GLM4MOE = {k: v for k, v in GLM4.items() if k not in ("pad_token_id", "rope_theta")} | {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "num_hidden_layers": 3,
    "intermediate_size": 48,
    "first_k_dense_replace": 1,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "use_qk_norm": True,
    "rope_theta": 10000.0,
}

# The layers of DeepSeek 16B are Llama's, with experts like those of Qwen 2 (golden_twins.py).
DEEPSEEK = {k: v for k, v in LLAMA.items() if k != "mlp_bias"} | {
    "architectures": ["DeepseekForCausalLM"],
    "model_type": "deepseek",
    "num_hidden_layers": 3,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "norm_topk_prob": False,
    "scoring_func": "softmax",
}

# Latent attention. DeepSeek V2 Lite has no latent row of queries and no groups.
DEEPSEEK_V2_LITE = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "rope_scaling")} | {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "num_hidden_layers": 3,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "norm_topk_prob": False,
    "scoring_func": "softmax",
    "routed_scaling_factor": 1.0,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 32,
                     "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707},
}

DEEPSEEK_V2 = DEEPSEEK_V2_LITE | {
    "q_lora_rank": 24,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "topk_method": "group_limited_greedy",
    "routed_scaling_factor": 16.0,
}

DEEPSEEK_V3 = {k: v for k, v in DEEPSEEK_V2.items() if k != "topk_method"} | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.5,
    "rope_scaling": DEEPSEEK_V2["rope_scaling"] | {"mscale": 1.0, "mscale_all_dim": 1.0},
}

# Moonlight, whose queries have no latent row.
MOONLIGHT = {k: v for k, v in DEEPSEEK_V3.items() if k != "rope_scaling"} | {
    "q_lora_rank": None,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 2.446,
    "rope_theta": 50000.0,
}

# Sparse attention. A token sees up to 32 cells and attends to 9 of them. With 8 heads of the indexer few scores are zero,
# so the ninth and the tenth cell are never equal; with these weights they stay apart in f16 too.
DEEPSEEK_V32 = {k: v for k, v in DEEPSEEK_V3.items() if k not in ("scoring_func", "topk_method", "moe_layer_freq")} | {
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_n_heads": 8,
    "index_head_dim": 32,
    "index_topk": 9,
}

# GLM 5.2: the second layer attends to the cells of the first.
GLM_DSA = {k: v for k, v in DEEPSEEK_V32.items() if k != "rope_scaling"} | {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "v_head_dim": 32,
    "n_group": 1,
    "topk_group": 1,
    "index_topk": 7,
    "indexer_types": ["full", "shared", "full"],
}

# The layers of Ling 2 are those of GLM 4.5 (golden_twins.py).
BAILINGMOE2 = {k: v for k, v in GLM4MOE.items() if k not in ("attention_bias", "n_routed_experts", "n_shared_experts")} | {
    "architectures": ["BailingMoeV2ForCausalLM"],
    "model_type": "bailing_moe",
    "num_experts": 8,
    "num_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "use_bias": False,
    "use_qkv_bias": False,
}

MINIMAX_M2 = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "attention_bias", "rope_scaling")} | {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "model_type": "minimax_m2",
    "head_dim": 16,
    "rotary_dim": 8,
    "intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
}

EXAONE_MOE = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "attention_bias", "rope_scaling")} | {
    "architectures": ["ExaoneMoeForCausalLM"],
    "model_type": "exaone_moe",
    "num_hidden_layers": 4,
    "intermediate_size": 32,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "first_k_dense_replace": 1,
    "num_experts": 8,
    "num_shared_experts": 1,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}

HUNYUAN_MOE = HUNYUAN_DENSE | {
    "architectures": ["HunYuanMoEV1ForCausalLM"],
    "model_type": "hunyuan_v1_moe",
    "intermediate_size": 16,
    "num_experts": 6,
    "moe_topk": [3, 3],
    "num_shared_expert": [1, 1],
}

# With this original context yarn's ramp begins and ends between two frequencies, so truncate changes it.
GPT_OSS = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "torch_dtype")} | {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "dtype": "float32",
    "head_dim": 16,
    "intermediate_size": 32,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                     "original_max_position_embeddings": 32},
    "rope_theta": 150000.0,
    "sliding_window": 8,
    "swiglu_limit": 7.0,
}

GEMMA4_EXPERTS = GEMMA4 | {
    "attention_k_eq_v": True,
    "enable_moe_block": True,
    "hidden_size_per_layer_input": 0,
    "layer_types": GEMMA4["layer_types"][:3],
    "moe_intermediate_size": 16,
    "num_experts": 6,
    "num_global_key_value_heads": 1,
    "num_hidden_layers": 3,
    "num_kv_shared_layers": 0,
    "top_k_experts": 3,
    "use_double_wide_mlp": False,
}

LLAMA4 = {k: v for k, v in LLAMA.items() if k != "mlp_bias"} | {
    "architectures": ["Llama4ForCausalLM"],
    "model_type": "llama4_text",
    "attention_chunk_size": 7,
    "attn_scale": 0.4,
    "attn_temperature_tuning": True,
    "floor_scale": 5,
    "head_dim": 16,
    "interleave_moe_layer_step": 2,
    "intermediate_size": 16,
    "intermediate_size_mlp": 24,
    "no_rope_layers": [],
    "num_attention_heads": 4,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 6,
    "use_qk_norm": True,
}

PHIMOE = {k: v for k, v in LLAMA.items() if k != "mlp_bias"} | {
    "architectures": ["PhiMoEForCausalLM"],
    "model_type": "phimoe",
    "attention_bias": True,
    "intermediate_size": 16,
    "lm_head_bias": True,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "original_max_position_embeddings": 64,
    "rope_scaling": {"type": "longrope", "long_factor": [1.0, 1.1, 2.0, 4.0], "long_mscale": 1.25,
                     "short_factor": [1.0, 1.0, 1.1, 1.5], "short_mscale": 1.25, "original_max_position_embeddings": 64},
    "router_jitter_noise": 0.01,
    "sliding_window": None,
}

DBRX = {
    "architectures": ["DbrxForCausalLM"],
    "model_type": "dbrx",
    "attn_config": {"clip_qkv": 1.5, "kv_n_heads": 2, "rope_theta": 5000.0},
    "d_model": 32,
    "ffn_config": {"ffn_act_fn": {"name": "silu"}, "ffn_hidden_size": 16, "moe_num_experts": 6, "moe_top_k": 3,
                   "moe_normalize_expert_weights": 1.0},
    "max_seq_len": 128,
    "n_heads": 4,
    "n_layers": 2,
    "rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "vocab_size": 96,
}

# model_type: names in transformers' class -> names in published files. None: a tensor for each expert.
PUBLISHED = {
    "qwen2_moe": None,
    "qwen3_moe": None,
    "olmoe": None,
    "dots1": None,
    "glm4_moe": None,
    "deepseek": None,
    "bailing_moe": None,
    "minimax_m2": {".mlp.": ".block_sparse_moe.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
    "exaone_moe": {"mlp.gate.e_score": "mlp.e_score"},
    "hunyuan_v1_moe": None,
    "deepseek_v2": None,
    "deepseek_v3": None,
    "deepseek_v32": None,
    "glm_moe_dsa": None,
    "ernie4_5_moe": {"mlp.gate.moe_statics": "mlp.moe_statics"},
    "phimoe": {".mlp.": ".block_sparse_moe.", "router.weight": "gate.weight", "gate_proj": "w1", "up_proj": "w3",
               "down_proj": "w2"},
    "mixtral": {".mlp.": ".block_sparse_moe.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
    "granitemoe": {"experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight",
                   "router.weight": "router.layer.weight"},
}


def published(shapes, model_type):
    """The names and shapes of a model's own files, from those of its class in transformers."""
    if model_type not in PUBLISHED:
        return shapes
    names, out = PUBLISHED[model_type] or {}, {}
    for name, shape in shapes.items():
        parts = {name: shape}
        if ".experts." in name and model_type != "granitemoe":
            stem, kind = name.rsplit(".", 1)
            experts, rows, columns = shape
            matrices = {"gate_proj": rows // 2, "up_proj": rows // 2} if kind == "gate_up_proj" else {kind: rows}
            parts = {f"{stem}.{i}.{m}.weight": (n, columns) for i in range(experts) for m, n in matrices.items()}
        for part, size in parts.items():
            if ".mlp." in part or ".block_sparse_moe." in part:
                for theirs, own in names.items():
                    part = part.replace(theirs, own)
            out[part] = size
    return out


def stacked(weights):
    """One tensor for each kind of matrix of all experts of a layer, under names that the gguf package knows."""
    out, experts = {}, {}
    for name, w in weights.items():
        if match := re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", name):
            stem, i, kind = match.groups()
            experts.setdefault(f"{stem}.{kind}.weight", {})[int(i)] = w
        elif name.endswith("input_linear.weight"):  # Granite's
            stem = name.removesuffix("input_linear.weight")
            out[f"{stem}experts.w1.weight"], out[f"{stem}experts.w3.weight"] = w.chunk(2, dim=1)
        elif name.endswith("output_linear.weight"):
            out[name.replace("output_linear", "experts.w2")] = w
        else:
            name = name.replace("correction_bias", "correction.bias").replace("expert_bias", "expert_bias.bias")
            out[name] = w.squeeze(0) if name.endswith(("shared_expert_gate.weight", "correction.bias")) else w
    return out | {name: torch.stack([of[i] for i in range(len(of))]) for name, of in experts.items()}


def in_stacks(weights):
    """The names and shapes of transformers' class, from those of published files."""
    out = stacked(weights)
    for name in [n for n in out if n.endswith(".experts.gate_proj.weight")]:
        stem = name.removesuffix("gate_proj.weight")
        both = [out.pop(stem + f"{kind}.weight") for kind in ("gate_proj", "up_proj")]
        out[stem + "gate_up_proj"], out[stem + "down_proj"] = torch.cat(both, dim=1), out.pop(stem + "down_proj.weight")
    out = {k.replace("correction.bias", "correction_bias"): w for k, w in out.items()}
    return {k: w[None] if k.endswith("shared_expert_gate.weight") else w for k, w in out.items()}


def gpt_oss_experts(weights):
    """gpt-oss's gates and ups alternate, (experts, in, out). The package wants (experts, out, in), each with its name."""
    out = {}
    for name, w in weights.items():
        if ".experts." in name:
            bias = name.endswith("_bias")
            stem, w = name.removesuffix("_bias"), w if bias else w.transpose(1, 2)
            parts = {stem: w}
            if stem.endswith("gate_up_proj"):
                parts = {stem.replace("gate_up", "gate"): w[:, ::2], stem.replace("gate_up", "up"): w[:, 1::2]}
            out |= {part + (".bias" if bias else ".weight"): v for part, v in parts.items()}
        else:
            out[name + ".weight" if name.endswith("sinks") else name] = w
    return out


def llama4_experts(weights):
    """Llama 4's experts are (experts, in, out): the gates, then the ups. The package wants (experts, out, in)."""
    out = {}
    for name, w in weights.items():
        if name.endswith("experts.gate_up_proj"):
            gates, ups = w.transpose(1, 2).chunk(2, dim=1)
            out |= {name.replace("gate_up", "gate") + ".weight": gates, name.replace("gate_up", "up") + ".weight": ups}
        else:
            out |= {name + ".weight": w.transpose(1, 2)} if name.endswith("experts.down_proj") else {name: w}
    return out


def dbrx_experts(weights, experts):
    """DBRX's experts are one below the other; w2 is (in, out). The package wants (experts, out, in)."""
    out = {}
    for name, w in weights.items():
        if ".experts." in name:
            w = w.reshape(experts, -1, w.shape[-1])
            name, w = name + ".weight", w.transpose(1, 2) if name.endswith("w2") else w
        out[name] = w
    return out


def add_keys(writer, c):
    counts = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    writer.add_expert_count(next(c[name] for name in counts if name in c))
    writer.add_expert_used_count(c.get("num_experts_per_tok") or c["moe_k"])
    if "moe_intermediate_size" in c:
        writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in c:
        writer.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])


def dots1(writer, c):
    add_keys(writer, c)
    writer.add_leading_dense_block_count(c["first_k_dense_replace"])
    writer.add_expert_shared_count(c["n_shared_experts"])
    writer.add_expert_weights_scale(c["routed_scaling_factor"])
    writer.add_expert_weights_norm(c["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_group_count(c["n_group"])
    writer.add_expert_group_used_count(c["topk_group"])


def minimax_m2(writer, c):
    add_keys(writer, c)
    writer.add_rope_dimension_count(c["rotary_dim"])
    writer.add_expert_feed_forward_length(c["intermediate_size"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def bailingmoe2(writer, c):
    dots1(writer, c | {"n_shared_experts": c["num_shared_experts"]})


def exaone_moe(writer, c):
    dots1(writer, c | {"n_shared_experts": c["num_shared_experts"]})
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c["layer_types"]])


def hunyuan_moe(writer, c):
    dim = c["head_dim"]
    writer.add_rope_freq_base(c["rope_theta"] * c["rope_scaling"]["alpha"] ** (dim / (dim - 2)))
    writer.add_expert_count(c["num_experts"])
    writer.add_expert_used_count(c["moe_topk"][0])
    writer.add_expert_feed_forward_length(c["intermediate_size"])
    writer.add_expert_shared_feed_forward_length(c["intermediate_size"])


def deepseek(writer, c):
    add_keys(writer, c)
    writer.add_leading_dense_block_count(c["first_k_dense_replace"])
    writer.add_expert_shared_count(c["n_shared_experts"])
    writer.add_expert_weights_scale(c.get("routed_scaling_factor", 1.0))


def deepseek2(writer, c):
    """Until 2025 the keys were those of expanded attention."""
    deepseek(writer, c)
    rope, rank, width = c["qk_rope_head_dim"], c["kv_lora_rank"], c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    writer.add_kv_lora_rank(rank)
    writer.add_rope_dimension_count(rope)
    if c["q_lora_rank"]:
        writer.add_q_lora_rank(c["q_lora_rank"])
    if is_older(c):
        writer.add_key_length(width), writer.add_value_length(c["v_head_dim"])
    else:
        writer.add_head_count_kv(1)
        writer.add_key_length(rank + rope), writer.add_value_length(rank)
        writer.add_key_length_mla(width), writer.add_value_length_mla(c["v_head_dim"])
        writer.add_expert_group_count(c["n_group"]), writer.add_expert_group_used_count(c["topk_group"])
        sigmoid = c.get("scoring_func", "sigmoid") == "sigmoid"
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX)
        writer.add_expert_weights_norm(c["norm_topk_prob"])
    if c.get("rope_scaling"):
        writer.add_rope_scaling_yarn_log_mul(0.1 * c["rope_scaling"]["mscale_all_dim"])


def is_older(c):
    return c.get("scoring_func") == "softmax" and not c["q_lora_rank"]


def sparse(writer, c):
    deepseek2(writer, c)
    writer.add_indexer_head_count(c["index_n_heads"])
    writer.add_indexer_key_length(c["index_head_dim"])
    writer.add_indexer_top_k(c["index_topk"])
    if "indexer_types" in c:
        writer.add_array("glm-dsa.attention.indexer.types", [int(kind == "full") for kind in c["indexer_types"]])


def with_matrices_of_heads(weights, c):
    """kv_b_proj in two tensors of three dimensions, (head, latent, key) and (head, value, latent)."""
    if is_older(c):
        return weights
    out = {}
    for name, w in weights.items():
        if not name.endswith("kv_b_proj.weight"):
            out[name] = w
            continue
        k, v = w.view(c["num_attention_heads"], -1, c["kv_lora_rank"]).split([c["qk_nope_head_dim"], c["v_head_dim"]], dim=1)
        out[name.replace("kv_b", "k_b")], out[name.replace("kv_b", "v_b")] = k.transpose(1, 2), v
    return out

def ernie4_5_moe(writer, c):
    add_keys(writer, c)
    writer.add_leading_dense_block_count(c["moe_layer_start_index"])
    writer.add_interleave_moe_layer_step(c["moe_layer_interval"])
    writer.add_expert_shared_count(c["moe_num_shared_experts"])
    writer.add_expert_shared_feed_forward_length(c["moe_num_shared_experts"] * c["moe_intermediate_size"])

"""Models whose layers remember in a fixed space: config.json, published names, and GGUF in the form of llama.cpp's converters.

MODELS has entries as golden_models.MODELS. The lengths cross the chunks of 64 and 256 positions of transformers' own scans.
"""

import re

import gguf
import numpy as np
import torch

from golden_configs import GRANITE, LLAMA, QWEN3
from golden_experts import stacked

ARCH = gguf.MODEL_ARCH


def without(config, *names):
    return {k: v for k, v in config.items() if k not in names}


SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2,
         "pad_token_id": 0, "torch_dtype": "float32"}

MAMBA = SMALL | {
    "architectures": ["MambaForCausalLM"], "model_type": "mamba", "hidden_act": "silu", "state_size": 7, "expand": 2,
    "intermediate_size": 64, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 5,
    "layer_norm_epsilon": 1e-5, "residual_in_fp32": True, "tie_word_embeddings": True}

MAMBA2 = without(MAMBA, "intermediate_size", "time_step_rank") | {
    "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "state_size": 24, "num_heads": 8, "head_dim": 8,
    "n_groups": 2, "rms_norm": True, "chunk_size": 64, "tie_word_embeddings": False}

# The norms of time steps, B and C have the epsilon of the other norms, because GGUF files have one number for all.
FALCON_MAMBA = MAMBA | {
    "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba", "mixer_rms_eps": 1e-5}

LFM2 = without(LLAMA, "hidden_act", "intermediate_size", "attention_bias", "mlp_bias", "rms_norm_eps", "rope_scaling") | {
    "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "block_ff_dim": 80, "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": True, "conv_bias": False, "conv_L_cache": 3, "norm_eps": 1e-5, "rope_theta": 1000000.0,
    "layer_types": ["conv", "full_attention", "conv", "conv"], "tie_word_embeddings": True}

LFM2_MOE = without(LFM2, "block_ff_dim", "block_multiple_of", "block_ffn_dim_multiplier", "block_auto_adjust_ff_dim") | {
    "architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "intermediate_size": 48, "moe_intermediate_size": 16,
    "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": True, "use_expert_bias": True,
    "routed_scaling_factor": 1.0}

MAMBA_OF_HYBRIDS = {"mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2,
                    "mamba_d_state": 24, "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_chunk_size": 64}

GRANITE_HYBRID = without(GRANITE, "mlp_bias", "rope_theta", "rope_scaling") | MAMBA_OF_HYBRIDS | {
    "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "num_hidden_layers": 3,
    "intermediate_size": 16, "shared_intermediate_size": 24, "num_local_experts": 6, "num_experts_per_tok": 3,
    "position_embedding_type": "nope", "layer_types": ["mamba", "attention", "mamba"]}

JAMBA = without(LLAMA, "mlp_bias", "attention_bias", "rope_theta", "rope_scaling") | {
    "architectures": ["JambaForCausalLM"], "model_type": "jamba", "num_hidden_layers": 4, "intermediate_size": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "attn_layer_period": 4, "attn_layer_offset": 2, "pad_token_id": 0,
    "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 6, "num_experts_per_tok": 2, "mamba_d_state": 7,
    "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 5, "mamba_conv_bias": True, "mamba_proj_bias": False}

FALCON_H1 = LLAMA | MAMBA_OF_HYBRIDS | {
    "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "head_dim": 16, "pad_token_id": 0,
    "mamba_d_ssm": 48, "mamba_n_heads": 6, "mamba_rms_norm": True, "mamba_norm_before_gate": False, "projectors_bias": False,
    "lm_head_multiplier": 0.5, "embedding_multiplier": 2.0, "mlp_multipliers": [0.8, 0.6], "key_multiplier": 0.7,
    "attention_in_multiplier": 0.9, "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2, "ssm_out_multiplier": 0.6,
    "ssm_multipliers": [0.9, 0.8, 0.7, 1.1, 1.3]}

# Without multipliers, as GGUF files are: llama.cpp's converter multiplies the weights by them.
FALCON_H1_PLAIN = FALCON_H1 | {
    "lm_head_multiplier": 1.0, "embedding_multiplier": 1.0, "mlp_multipliers": [1.0, 1.0], "key_multiplier": 1.0,
    "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0,
    "ssm_multipliers": [1.0, 1.0, 1.0, 1.0, 1.0], "mamba_rms_norm": False}

NEMOTRON_H = SMALL | {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "num_hidden_layers": 4,
    "hybrid_override_pattern": "M-*M", "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 1024, "mlp_hidden_act": "relu2", "ssm_state_size": 24, "mamba_num_heads": 6,
    "mamba_head_dim": 8, "mamba_hidden_act": "silu", "n_groups": 2, "conv_kernel": 4, "use_conv_bias": True, "use_bias": False,
    "mamba_proj_bias": False, "attention_bias": False, "mlp_bias": False, "layer_norm_epsilon": 1e-5, "chunk_size": 64,
    "tie_word_embeddings": False}

NEMOTRON_H_MOE = NEMOTRON_H | {
    "hybrid_override_pattern": "ME*E", "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
    "moe_intermediate_size": 16, "moe_shared_expert_intermediate_size": 24, "routed_scaling_factor": 2.5, "n_group": 1,
    "topk_group": 1, "norm_topk_prob": True, "moe_latent_size": None}

NEMOTRON_H_BOTH = NEMOTRON_H_MOE | {"hybrid_override_pattern": "ME-*", "n_routed_experts": 4}

LINEAR = {"linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_num_key_heads": 2,
          "linear_num_value_heads": 4}

QWEN3NEXT = without(QWEN3, "use_sliding_window", "sliding_window", "max_window_layers", "rope_theta", "rope_scaling") | LINEAR | {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_hidden_layers": 4, "num_experts": 6,
    "num_experts_per_tok": 3, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 4, "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25}}

QWEN35_ROPE = {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
               "mrope_section": [1, 1, 0]}

QWEN35 = without(QWEN3NEXT, "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
                 "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers") | {
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "linear_num_value_heads": 2,
    "max_position_embeddings": 512, "tie_word_embeddings": True, "rope_parameters": QWEN35_ROPE}

QWEN35_MOE = without(QWEN3NEXT, "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "intermediate_size") | {
    "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "linear_num_value_heads": 2,
    "rope_parameters": QWEN35_ROPE}

FACTORS = {f"{part}_{factor}_factor": value for part in ("full_attn", "linear_attn", "mlp")
           for factor, value in (("alpha", 3.5565588200778455), ("beta", 1.0))}

MINIMAX_01 = without(LLAMA, "attention_bias", "mlp_bias", "rope_scaling") | FACTORS | {
    "architectures": ["MiniMaxForCausalLM"], "model_type": "minimax", "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 16, "num_local_experts": 6, "num_experts_per_tok": 2,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"], "block_size": 64, "rope_theta": 10000.0,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6}

KIMI_LINEAR = SMALL | {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "num_hidden_layers": 4, "intermediate_size": 48,
    "num_attention_heads": 2, "num_key_value_heads": 2, "hidden_act": "silu", "model_max_length": 512, "rms_norm_eps": 1e-5,
    "kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "mla_use_nope": True, "first_k_dense_replace": 1, "moe_intermediate_size": 16, "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid", "num_experts": 8, "num_experts_per_token": 3, "num_shared_experts": 1,
    "num_expert_group": 1, "topk_group": 1, "routed_scaling_factor": 2.446, "tie_word_embeddings": False, "rope_theta": 10000.0,
    "rope_scaling": None,
    "linear_attn_config": {"full_attn_layers": [2, 4], "kda_layers": [1, 3], "head_dim": 24, "num_heads": 2,
                           "short_conv_kernel_size": 4}}

F32 = torch.float32
MODELS = {
    "mamba": ("the selective scan with 7 states of a channel, convolution of 4 taps, tied head", MAMBA, F32, 140, None),
    "falcon_mamba": ("Mamba with norms of time steps, B and C, which have no weights", FALCON_MAMBA, F32, 100,
                     {"layer_norm_epsilon": 1e-1}),
    "mamba2": ("8 heads of 8 by 24, 2 groups, gated norm of groups", MAMBA2, F32, 300, {"layer_norm_epsilon": 1e-1}),
    "lfm2": ("gated short convolutions and one layer of attention with norms of heads", LFM2, F32, 70, {"rope_theta": 10000.0}),
    "lfm2_moe": ("LFM2 with experts chosen by a sigmoid with a bias, one dense layer", LFM2_MOE, F32, 48,
                 {"norm_topk_prob": False}),
    "granite_hybrid": ("Mamba 2 and attention without positions, experts and a shared one, four factors", GRANITE_HYBRID, F32,
                       100, {"attention_multiplier": 1.0}),
    "jamba": ("Mamba with norms of time steps, B and C; attention without positions; experts in every other layer", JAMBA, F32,
              100, {"num_experts_per_tok": 1}),
    "falcon_h1": ("Mamba 2 and attention in parallel in every layer, factors of all of their parts", FALCON_H1, F32, 100,
                  {"ssm_multipliers": [1.0, 1.0, 1.0, 1.0, 1.0]}),
    "falcon_h1_plain": ("Falcon-H1 without factors and without the norm of the scan's result", FALCON_H1_PLAIN, F32, 100,
                        {"key_multiplier": 2.0}),
    "nemotron_h": ("layers of one part each: Mamba 2, attention without positions, relu2 feed-forward", NEMOTRON_H, F32, 100,
                   {"mlp_hidden_act": "silu"}),
    "nemotron_h_moe": ("Nemotron-H with ungated experts and a shared one", NEMOTRON_H_MOE, F32, 100, {"norm_topk_prob": False}),
    "nemotron_h_both": ("Nemotron-H with experts in one layer and a plain feed-forward in another", NEMOTRON_H_BOTH, F32, 100,
                        {"norm_topk_prob": False}),
    "qwen3next": ("gated delta nets with 4 value heads over 2 key heads, gated attention, a gated shared expert", QWEN3NEXT, F32,
                  100, {"norm_topk_prob": False}),
    "qwen35": ("Qwen 3.5: delta nets with projections of their own, interleaved sections of positions", QWEN35, F32, 300,
               {"linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-2}),
    "qwen35_grouped": ("4 value heads over 2 key heads, which GGUF files have in another order",
                       QWEN35 | {"linear_num_value_heads": 4}, F32, 70, {"rms_norm_eps": 1e-2}),
    "minimax_01": ("lightning attention and one layer of soft-max attention, experts, factors of normed inputs", MINIMAX_01, F32,
                   300, {"mlp_alpha_factor": 1.0}),
    "minimax_01_norms": ("norms with 1e-2, but for that of lightning attention, which always has 1e-6",
                         MINIMAX_01 | {"rms_norm_eps": 1e-2, "num_local_experts": 3}, F32, 70, {"rms_norm_eps": 1e-6}),
    "kimi_linear": ("delta rules with a decay for each channel, latent attention without positions, experts and a shared one",
                    KIMI_LINEAR, F32, 300, {"moe_renormalize": False}),
    "qwen35_moe": ("Qwen 3.5 with experts", QWEN35_MOE, F32, 70, {"num_experts_per_tok": 2}),
}

# Their config.json says what GGUF files cannot say.
NOT_IN_GGUF = ("minimax_01_norms", "nemotron_h_both")

# Names in transformers' class -> names in published files, of models whose experts are stored one by one.
W123 = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
EXPERTS = {"jamba": {}, "qwen3_next": {}, "lfm2_moe": W123, "minimax": W123, "kimi_linear": W123,
           "nemotron_h": {}}


def published(shapes, model_type):
    """The names and shapes of a model's own files, from those of its class in transformers."""
    out = {}
    for name, shape in shapes.items():
        if model_type == "minimax" and name.endswith(("_decay", "slope_rate")):  # computed, not stored
            continue
        if model_type == "nemotron_h":
            name = name.replace("model.", "backbone.", 1)
        if model_type in EXPERTS and (match := re.fullmatch(r"(.*\.experts)\.(gate_up_proj|up_proj|down_proj)", name)):
            stem, kind = match.groups()
            kinds = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else [kind]
            for i in range(shape[0]):
                for k in kinds:
                    out[f"{stem}.{i}.{EXPERTS[model_type].get(k, k)}.weight"] = (shape[1] // len(kinds), shape[2])
        elif model_type == "kimi_linear" and name.endswith("conv1d.weight"):
            for part in "qkv":
                out[name.replace("conv1d", part + "_conv1d")] = (shape[0] // 3, *shape[1:])
        elif model_type == "granitemoehybrid":
            for theirs, own in {"experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight",
                                "router.weight": "router.layer.weight"}.items():
                name = name.replace(theirs, own)
            out[name] = shape
        else:
            out[name] = shape
    if model_type in ("minimax", "kimi_linear"):
        out = {re.sub(r"\.mlp\.(?=gate\.|experts|shared)", ".block_sparse_moe.", k).replace(".forget_gate", ""): v
               for k, v in out.items()}
    return out


def ssm_keys(writer, kernel, inner, state, rank, groups):
    writer.add_ssm_conv_kernel(kernel), writer.add_ssm_inner_size(inner), writer.add_ssm_state_size(state)
    writer.add_ssm_time_step_rank(rank)
    if groups:
        writer.add_ssm_group_count(groups)


def mamba(writer, c):
    writer.add_context_length(2**20), writer.add_feed_forward_length(0), writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    if "time_step_rank" in c:
        ssm_keys(writer, c["conv_kernel"], 2 * c["hidden_size"], c["state_size"], c["time_step_rank"], None)
        writer.add_ssm_dt_b_c_rms("mixer_rms_eps" in c)
    else:
        ssm_keys(writer, c["conv_kernel"], 2 * c["hidden_size"], c["state_size"], c["num_heads"], c["n_groups"])


def attention_keys(writer, c, kv=None):
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(kv or c["num_key_value_heads"])
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    writer.add_key_length(head_dim), writer.add_value_length(head_dim)
    rope = c.get("rope_parameters") or c
    if "rope_theta" in rope:
        writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1)))
        writer.add_rope_freq_base(rope["rope_theta"])


def kv_of(c, kind):
    return [c["num_key_value_heads"] if t == kind else 0 for t in c["layer_types"]]


def lfm2(writer, c):
    attention_keys(writer, c, kv_of(c, "full_attention"))
    ffn = c.get("intermediate_size") or 8 * ((int(2 * c["block_ff_dim"] / 3) + 7) // 8)
    writer.add_feed_forward_length(ffn)
    writer.add_shortconv_l_cache(c["conv_L_cache"]), writer.add_layer_norm_rms_eps(c["norm_eps"])
    if "num_experts" in c:
        writer.add_expert_count(c["num_experts"]), writer.add_expert_used_count(c["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
        writer.add_leading_dense_block_count(c["num_dense_layers"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def granite_hybrid(writer, c):
    attention_keys(writer, c, kv_of(c, "attention"))
    writer.add_feed_forward_length(c["intermediate_size"]), writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_expert_count(c["num_local_experts"]), writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_expert_shared_feed_forward_length(c["shared_intermediate_size"])
    writer.add_embedding_scale(c["embedding_multiplier"]), writer.add_attention_scale(c["attention_multiplier"])
    writer.add_residual_scale(c["residual_multiplier"]), writer.add_logit_scale(c["logits_scaling"])
    ssm_keys(writer, c["mamba_d_conv"], c["mamba_expand"] * c["hidden_size"], c["mamba_d_state"], c["mamba_n_heads"],
             c["mamba_n_groups"])


def jamba(writer, c):
    period, offset = c["attn_layer_period"], c["attn_layer_offset"]
    attention_keys(writer, c, [c["num_key_value_heads"] if i % period == offset else 0 for i in range(c["num_hidden_layers"])])
    writer.add_feed_forward_length(c["intermediate_size"]), writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_expert_count(c["num_experts"]), writer.add_expert_used_count(c["num_experts_per_tok"])
    ssm_keys(writer, c["mamba_d_conv"], c["mamba_expand"] * c["hidden_size"], c["mamba_d_state"], c["mamba_dt_rank"], None)


def falcon_h1(writer, c):
    attention_keys(writer, c)
    writer.add_feed_forward_length(c["intermediate_size"]), writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    ssm_keys(writer, c["mamba_d_conv"], c["mamba_d_ssm"], c["mamba_d_state"], c["mamba_n_heads"], c["mamba_n_groups"])


def nemotron_h(writer, c):
    pattern = c["hybrid_override_pattern"]
    attention_keys(writer, c, [c["num_key_value_heads"] if p == "*" else 0 for p in pattern])
    if experts := c.get("n_routed_experts"):
        writer.add_layer_norm_eps(c["layer_norm_epsilon"])
        writer.add_feed_forward_length([c["moe_intermediate_size"] if p == "E" else 0 for p in pattern])
        writer.add_expert_count(experts), writer.add_expert_used_count(c["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(c["moe_shared_expert_intermediate_size"])
        writer.add_expert_shared_count(c["n_shared_experts"]), writer.add_expert_weights_norm(c["norm_topk_prob"])
        writer.add_expert_weights_scale(c["routed_scaling_factor"]), writer.add_expert_group_count(c["n_group"])
    else:
        writer.add_feed_forward_length([c["intermediate_size"] if p == "-" else 0 for p in pattern])
    writer.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    ssm_keys(writer, c["conv_kernel"], c["mamba_num_heads"] * c["mamba_head_dim"], c["ssm_state_size"], c["mamba_num_heads"],
             c["n_groups"])


def qwen3next(writer, c):
    attention_keys(writer, c)
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_full_attention_interval(c["full_attention_interval"])
    ssm_keys(writer, c["linear_conv_kernel_dim"], c["linear_value_head_dim"] * c["linear_num_value_heads"],
             c["linear_key_head_dim"], c["linear_num_value_heads"], c["linear_num_key_heads"])
    if "mrope_section" in c["rope_parameters"]:
        writer.add_rope_dimension_sections(c["rope_parameters"]["mrope_section"] + [0])
    if "num_experts" in c:
        writer.add_expert_count(c["num_experts"]), writer.add_expert_used_count(c["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    else:
        writer.add_feed_forward_length(c["intermediate_size"])


def minimax(writer, c):
    attention_keys(writer, c)
    writer.add_array("minimax-01.attention.recurrent_layers", [t == "linear_attention" for t in c["layer_types"]])
    writer.add_feed_forward_length(c["intermediate_size"]), writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_expert_count(c["num_local_experts"]), writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_residual_scale(c["full_attn_alpha_factor"])


def kimi_linear(writer, c):
    linear, latent, turned = c["linear_attn_config"], c["kv_lora_rank"], c["qk_rope_head_dim"]
    writer.add_context_length(c["model_max_length"]), writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv([int(i + 1 in linear["full_attn_layers"]) for i in range(c["num_hidden_layers"])])
    writer.add_feed_forward_length(c["intermediate_size"]), writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_ssm_conv_kernel(linear["short_conv_kernel_size"])
    writer.add_uint32("kimi-linear.kda.head_dim", linear["head_dim"])
    writer.add_kv_lora_rank(latent), writer.add_rope_dimension_count(turned)
    writer.add_key_length(latent + turned), writer.add_value_length(latent)
    writer.add_key_length_mla(c["qk_nope_head_dim"] + turned), writer.add_value_length_mla(c["v_head_dim"])
    writer.add_expert_count(c["num_experts"]), writer.add_expert_used_count(c["num_experts_per_token"])
    writer.add_expert_feed_forward_length(c["moe_intermediate_size"]), writer.add_expert_shared_count(c["num_shared_experts"])
    writer.add_leading_dense_block_count(c["first_k_dense_replace"])
    writer.add_expert_weights_scale(c["routed_scaling_factor"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


# gguf 0.19 does not know MiniMax-01. Its tensors have the names of M2's, but for these.
MINIMAX_NAMES = {"self_attn.qkv_proj": "attn_qkv", "self_attn.output_gate": "attn_gate", "self_attn.norm": "attn_norm_2",
                 "self_attn.out_proj": "attn_output"}

# model_type: (architecture, q and k interleaved, keys)
FAMILIES = {
    "mamba": (ARCH.MAMBA, False, mamba),
    "falcon_mamba": (ARCH.MAMBA, False, mamba),
    "mamba2": (ARCH.MAMBA2, False, mamba),
    "minimax": (ARCH.MINIMAXM2, False, minimax),
    "kimi_linear": (ARCH.KIMI_LINEAR, False, kimi_linear),
    "lfm2": (ARCH.LFM2, False, lfm2),
    "lfm2_moe": (ARCH.LFM2MOE, False, lfm2),
    "granitemoehybrid": (ARCH.GRANITE_HYBRID, True, granite_hybrid),
    "jamba": (ARCH.JAMBA, False, jamba),
    "falcon_h1": (ARCH.FALCON_H1, False, falcon_h1),
    "nemotron_h": (ARCH.NEMOTRON_H, False, nemotron_h),
    "qwen3_next": (ARCH.QWEN3NEXT, False, qwen3next),
    "qwen3_5_text": (ARCH.QWEN35, False, qwen3next),
    "qwen3_5_moe_text": (ARCH.QWEN35MOE, False, qwen3next),
}


def tiled(w, c, head_dim, axis=0):
    """The value heads of neighbouring key heads in turn, where a file has those of each key head together."""
    k, v = c["linear_num_key_heads"], c["linear_num_value_heads"]
    shape = w.shape
    w = w.reshape(*shape[:axis], k, v // k, head_dim, *shape[axis + 1:])
    return w.swapaxes(axis, axis + 1).reshape(shape)


def tiled_linear(name, w, c):
    keys = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    width = c["linear_value_head_dim"]
    if ".in_proj_qkv." in name or ".conv1d." in name:
        return np.concatenate([w[:keys], tiled(w[keys:], c, width)])
    if ".in_proj_z." in name:
        return tiled(w, c, width)
    if name.endswith((".in_proj_a.weight", ".in_proj_b.weight", ".A_log", ".dt_bias")):
        return tiled(w, c, 1)
    return tiled(w, c, width, 1) if ".out_proj." in name else w


def split_qkvz(w, c):
    """Rows of q, k, v and z of each key head in turn -> all q, k and v, and all z."""
    k, width = c["linear_key_head_dim"], c["linear_value_head_dim"] * c["linear_num_value_heads"] // c["linear_num_key_heads"]
    w = w.reshape(c["linear_num_key_heads"], 2 * k + 2 * width, -1)
    parts = np.split(w, [k, 2 * k, 2 * k + width], axis=1)
    parts = [p.reshape(-1, w.shape[-1]) for p in parts]
    return np.concatenate(parts[:3]), parts[3]


def factors_of_falcon_h1(name, c):
    """What the weights of a layer are multiplied by."""
    first, second = c["mlp_multipliers"]
    attention = c["attention_in_multiplier"]
    groups = c["mamba_n_groups"] * c["mamba_d_state"]
    sizes = [c["mamba_d_ssm"], c["mamba_d_ssm"], groups, groups, c["mamba_n_heads"]]
    of = {"down_proj": second, "gate_proj": first, "k_proj": c["key_multiplier"] * attention, "q_proj": attention,
          "v_proj": attention, "o_proj": c["attention_out_multiplier"], "out_proj": c["ssm_out_multiplier"],
          "in_proj": c["ssm_in_multiplier"] * np.repeat(c["ssm_multipliers"], sizes)[:, None],
          "lm_head": c["lm_head_multiplier"], "embed_tokens": c["embedding_multiplier"]}
    return of.get(name.split(".")[-2], 1) if name.endswith(".weight") else 1


def permute(w, heads):
    rows = w.shape[0]
    return w.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(rows, -1)


def write_gguf(path, c, weights):
    weights = dict(weights)
    arch, interleaved, keys = FAMILIES[c["model_type"]]
    arch = ARCH.NEMOTRON_H_MOE if "n_routed_experts" in c else arch
    writer = gguf.GGUFWriter(path, "minimax-01" if c["model_type"] == "minimax" else gguf.MODEL_ARCH_NAMES[arch])
    writer.add_embedding_length(c["hidden_size"]), writer.add_block_count(c["num_hidden_layers"])
    writer.add_vocab_size(c["vocab_size"])
    keys(writer, c)
    names = gguf.get_tensor_name_map(arch, c["num_hidden_layers"])
    qwen = c["model_type"].startswith("qwen3_")
    groups = c.get("mamba_n_groups") or c.get("n_groups") or 1
    for name in [n for n in weights if "shared_mlp." in n]:
        stem = f"blk.{name.split('.')[2]}.ffn_"
        w = weights.pop(name).float().numpy()
        if "output" in name:
            writer.add_tensor(stem + "down_shexp.weight", w)
        else:
            for kind, part in zip(("gate", "up"), np.split(w, 2)):
                writer.add_tensor(f"{stem}{kind}_shexp.weight", np.ascontiguousarray(part))
    for name, tensor in stacked(weights).items():
        w = tensor.float().numpy()
        if c["model_type"] == "qwen3_5_text" and ".linear_attn." in name:
            w = tiled_linear(name, w, c)
        if c["model_type"] == "falcon_h1":
            w = (w * factors_of_falcon_h1(name, c)).astype(np.float32)
        if name.endswith(".A_log"):
            w = -np.exp(w)
        if name.endswith("conv.weight") or "conv1d.weight" in name:
            w = w.squeeze(1)
        if name.endswith((".A_log", ".D")) and w.ndim == 1 and not qwen and "Jamba" not in c["architectures"][0]:
            w = w if "time_step_rank" in c else w[:, None]
        if name.endswith(("mixer.norm.weight", "mamba.norm.weight")):
            w = w.reshape(groups, -1)
        if qwen and name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            w = w + 1
        part = name.split(".")[-2]
        if interleaved and part in ("q_proj", "k_proj"):
            w = permute(w, c["num_attention_heads" if part == "q_proj" else "num_key_value_heads"])
        tensors = {name: w}
        if name.endswith("in_proj_qkvz.weight"):
            qkv, z = split_qkvz(w, c)
            tensors = {name.replace("qkvz", "qkv"): qkv, name.replace("qkvz", "z"): z}
        if name.endswith(("q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight")):
            tensors = {name: w[None, :, None]}
        if name.endswith("kv_b_proj.weight"):
            k_b, v_b = np.split(w.reshape(c["num_attention_heads"], -1, w.shape[-1]), [c["qk_nope_head_dim"]], axis=1)
            tensors = {name.replace("kv_b", "k_b"): k_b.swapaxes(1, 2), name.replace("kv_b", "v_b"): v_b}
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(w, 2, axis=1)
            tensors = {name.replace("gate_up_proj", "gate_proj.weight"): gate, name.replace("gate_up_proj", "up_proj.weight"): up}
        for theirs, x in tensors.items():
            theirs = theirs.replace(".dt_bias", ".dt_proj.bias")
            if theirs.endswith("experts.down_proj"):
                theirs += ".weight"
            theirs = theirs.removeprefix("model.") if ".experts.w" in theirs and c["model_type"] == "lfm2_moe" else theirs
            theirs = theirs.replace("feed_forward.experts.", "mlp.experts.") if c["model_type"] == "jamba" else theirs
            theirs = re.sub(r"backbone\.(.*)mixer\.experts", r"model.\1mlp.experts", theirs)
            found = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
            if c["model_type"] == "minimax" and (own := MINIMAX_NAMES.get(".".join(theirs.split(".")[3:-1]))):
                found = f"blk.{theirs.split('.')[2]}.{own}.weight"
            assert found, f"{theirs} has no name in a {gguf.MODEL_ARCH_NAMES[arch]} file"
            bare = theirs.endswith((".A_log", ".D"))
            if not bare and not found.endswith((".weight", ".bias")):
                found += ".weight"
            writer.add_tensor(found, np.ascontiguousarray(x))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

"""Golden logits: tiny random models as Hugging Face folders, and the two shared models.

The oracle is transformers' eager path with weights and activations in float64. It still computes rms_norm, softmax and
the rope angles of the llama family in float32 whatever it is given, so the logits are good to 1e-6 .. 3e-5 (the long
rope sequences), not to 1e-15.
"""

import json
import math
import zlib

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.bitnet import pack_weights, replace_with_bitnet_linear

import golden_gguf
import golden_gguf_gpt

# One thread: the order of torch's additions, and so the last bit of a golden file, must not depend on the machine.
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 96,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

MISTRAL = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias", "rope_scaling")} | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
}

GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "n_embd": 32,
    "n_head": 4,
    "n_inner": None,
    "n_layer": 3,
    "n_ctx": 32,
    "n_positions": 32,
    "vocab_size": 100,
    "layer_norm_epsilon": 1e-5,
    "bos_token_id": 99,
    "eos_token_id": 99,
}

# Checkpoints of before transformers 5 say rope_theta and rope_scaling at the top; newer ones have one rope_parameters.
# Both are in the wild for years to come, so one model here has the new form.
NEW_FORM = {"rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}, "dtype": "float32", "head_dim": 16}
SHARDED = {k: v for k, v in LLAMA.items() if k not in ("rope_theta", "rope_scaling", "torch_dtype")} | NEW_FORM

QWEN2 = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias")} | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "use_sliding_window": False,
    "sliding_window": 8,
    "max_window_layers": 1,
}

STABLELM = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias", "rms_norm_eps", "rope_scaling")} | {
    "architectures": ["StableLmForCausalLM"],
    "model_type": "stablelm",
    "layer_norm_eps": 1e-5,
    "partial_rotary_factor": 0.25,
    "use_qkv_bias": True,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
}

STARCODER2 = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias", "rms_norm_eps", "rope_scaling")} | {
    "architectures": ["Starcoder2ForCausalLM"],
    "model_type": "starcoder2",
    "hidden_act": "gelu_pytorch_tanh",
    "norm_epsilon": 1e-5,
    "use_bias": True,
    "sliding_window": None,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}

PHI = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias", "rms_norm_eps", "rope_scaling")} | {
    "architectures": ["PhiForCausalLM"],
    "model_type": "phi",
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
    "partial_rotary_factor": 0.4,
    "hidden_size": 40,
    "num_key_value_heads": 2,
}

PHI3 = {k: v for k, v in LLAMA.items() if k != "mlp_bias"} | {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "original_max_position_embeddings": 128,
    "partial_rotary_factor": 0.75,
    "sliding_window": 12,
    "pad_token_id": 0,
}

OLMO2 = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "rope_scaling")} | {
    "architectures": ["Olmo2ForCausalLM"],
    "model_type": "olmo2",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "pad_token_id": 0,
}

SMOLLM3 = {k: v for k, v in LLAMA.items() if k not in ("rope_scaling",)} | {
    "architectures": ["SmolLM3ForCausalLM"],
    "model_type": "smollm3",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 5,
    "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0, 1],
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}

# What GPT-2's relatives have in common, under Llama's names for the sizes and under GPT-2's.
WIDE = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 96,
        "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "float32"}
SHORT = {"n_embd": 48, "n_head": 4, "n_layer": 2, "n_positions": 64, "n_inner": None, "vocab_size": 96,
         "layer_norm_epsilon": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}

GPT_NEOX = WIDE | {
    "architectures": ["GPTNeoXForCausalLM"],
    "model_type": "gpt_neox",
    "hidden_act": "gelu",
    "intermediate_size": 80,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.25,
    "use_parallel_residual": True,
}

FALCON = WIDE | {
    "architectures": ["FalconForCausalLM"],
    "model_type": "falcon",
    "alibi": False,
    "bias": False,
    "layer_norm_epsilon": 1e-5,
    "multi_query": True,
    "new_decoder_architecture": False,
    "parallel_attn": True,
    "tie_word_embeddings": True,
}

BLOOM = {
    "architectures": ["BloomForCausalLM"],
    "model_type": "bloom",
    "apply_residual_connection_post_layernorm": False,
    "hidden_size": 24,
    "layer_norm_epsilon": 1e-5,
    "n_head": 3,
    "n_layer": 2,
    "seq_length": 64,
    "vocab_size": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

MPT = {
    "architectures": ["MPTForCausalLM"],
    "model_type": "mpt",
    "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_type": "multihead_attention", "clip_qkv": 1.5,
                    "prefix_lm": False, "qk_ln": False, "softmax_scale": None},
    "d_model": 24,
    "expansion_ratio": 4,
    "layer_norm_epsilon": 1e-5,
    "logit_scale": None,
    "max_seq_len": 64,
    "n_heads": 6,
    "n_layers": 2,
    "no_bias": True,
    "vocab_size": 96,
    "torch_dtype": "float32",
}

STARCODER = SHORT | {
    "architectures": ["GPTBigCodeForCausalLM"],
    "model_type": "gpt_bigcode",
    "activation_function": "gelu_pytorch_tanh",
    "n_embd": 32,
    "multi_query": True,
    "scale_attn_weights": True,
}

GPTJ = SHORT | {
    "architectures": ["GPTJForCausalLM"],
    "model_type": "gptj",
    "activation_function": "gelu_new",
    "rotary_dim": 8,
    "tie_word_embeddings": False,
}

CODEGEN = GPTJ | {"architectures": ["CodeGenForCausalLM"], "model_type": "codegen"}

GPT_NEO = {
    "architectures": ["GPTNeoForCausalLM"],
    "model_type": "gpt_neo",
    "activation_function": "gelu_new",
    "attention_layers": ["global", "local", "global"],
    "attention_types": [[["global", "local"], 1], [["global"], 1]],
    "hidden_size": 48,
    "intermediate_size": None,
    "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 64,
    "num_heads": 3,
    "num_layers": 3,
    "vocab_size": 96,
    "window_size": 7,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "_remove_final_layer_norm": False,
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "ffn_dim": 80,
    "hidden_size": 48,
    "max_position_embeddings": 64,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "vocab_size": 96,
    "word_embed_proj_dim": 48,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "torch_dtype": "float32",
}

OLMO = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "rms_norm_eps")} | {
    "architectures": ["OlmoForCausalLM"],
    "model_type": "olmo",
    "clip_qkv": 1.5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "pad_token_id": 0,
}

NEMOTRON = {k: v for k, v in LLAMA.items() if k not in ("rms_norm_eps", "rope_scaling")} | {
    "architectures": ["NemotronForCausalLM"],
    "model_type": "nemotron",
    "hidden_act": "relu2",
    "norm_eps": 1e-5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "partial_rotary_factor": 0.5,
}

ARCEE = LLAMA | {"architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2"}

SEED_OSS = {k: v for k, v in LLAMA.items() if k != "rope_scaling"} | {
    "architectures": ["SeedOssForCausalLM"],
    "model_type": "seed_oss",
    "attention_bias": True,
    "attention_out_bias": False,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}

ERNIE45 = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias", "rope_scaling")} | {
    "architectures": ["Ernie4_5ForCausalLM"],
    "model_type": "ernie4_5",
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "use_bias": False,
}

HELIUM = LLAMA | {"architectures": ["HeliumForCausalLM"], "model_type": "helium", "head_dim": 16,
                  "rms_norm_eps": 1e-8, "rope_theta": 100000.0}

HUNYUAN_DENSE = {k: v for k, v in LLAMA.items() if k != "mlp_bias"} | {
    "architectures": ["HunYuanDenseV1ForCausalLM"],
    "model_type": "hunyuan_v1_dense",
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0},
    "tie_word_embeddings": True,
}

# Architectures that transformers has no class for: their files, what the same layers are to transformers, and what their
# files make of its weights. Those of 13B are the layers of Llama with other positions: see alibi().
BAICHUAN = {k: LLAMA[k] for k in ("hidden_act", "hidden_size", "intermediate_size", "num_hidden_layers",
                                  "num_attention_heads", "vocab_size", "rms_norm_eps", "bos_token_id", "eos_token_id",
                                  "tie_word_embeddings", "torch_dtype")} | {
    "architectures": ["BaichuanForCausalLM"],
    "model_type": "baichuan",
    "model_max_length": 128,
}

INTERNLM2 = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias")} | {
    "architectures": ["InternLM2ForCausalLM"],
    "model_type": "internlm2",
    "bias": False,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_scaling": {"type": "dynamic", "factor": 2.0},
}

CHATGLM = {
    "architectures": ["ChatGLMModel"],
    "model_type": "chatglm",
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "ffn_hidden_size": 48,
    "hidden_size": 32,
    "kv_channels": 16,
    "layernorm_epsilon": 1e-5,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 4,
    "num_layers": 2,
    "original_rope": True,
    "padded_vocab_size": 96,
    "post_layer_norm": True,
    "rmsnorm": True,
    "rope_ratio": 50,
    "seq_length": 64,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}

BITNET = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "rope_scaling")} | {
    "architectures": ["BitNetForCausalLM"],
    "model_type": "bitnet",
    "hidden_act": "relu2",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "quantization_config": {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"},
}

CODESHELL = SHORT | {
    "architectures": ["CodeShellForCausalLM"],
    "model_type": "codeshell",
    "activation_function": "gelu_pytorch_tanh",
    "group_query_attention": True,
    "n_inner": 96,
    "num_query_groups": 2,
    "position_embedding_type": "rope",
}


def llama_twin(config):
    return LLAMA | {k: config[k] for k in LLAMA if k in config and k not in ("architectures", "model_type", "rope_scaling")}


def baichuan_twin(config):
    return llama_twin(config) | {"num_key_value_heads": config["num_attention_heads"]}


def codeshell_twin(config):
    return STARCODER2 | {
        "hidden_size": config["n_embd"], "intermediate_size": config["n_inner"],
        "num_hidden_layers": config["n_layer"], "num_attention_heads": config["n_head"],
        "num_key_value_heads": config["num_query_groups"], "max_position_embeddings": config["n_positions"]}


def chatglm_twin(config):
    return {
        "model_type": "glm", "attention_bias": True, "head_dim": config["kv_channels"],
        "hidden_size": config["hidden_size"], "intermediate_size": config["ffn_hidden_size"],
        "max_position_embeddings": config["seq_length"], "num_attention_heads": config["num_attention_heads"],
        "num_hidden_layers": config["num_layers"], "num_key_value_heads": config["multi_query_group_num"],
        "pad_token_id": 0, "partial_rotary_factor": 0.5, "rms_norm_eps": config["layernorm_epsilon"],
        "rope_theta": 10000.0 * config["rope_ratio"], "tie_word_embeddings": False,
        "vocab_size": config["padded_vocab_size"]}


def bitnet_twin(config):
    return {k: v for k, v in config.items() if k != "quantization_config"}


def is_ternary(name):
    return name.endswith("_proj.weight")


def ternary(weights):
    """Each matrix of a layer as -1, 0 and 1 and one number, as BitNet's training rounds them."""
    out = dict(weights)
    for name in filter(is_ternary, weights):
        scale = weights[name].abs().mean()
        out[name] = (weights[name] / scale).round().clamp(-1, 1)
        out[name + "_scale"] = scale.reshape(1)
    return out


def bitnet_layout(weights, config):
    packed = config["quantization_config"]["quantization_mode"] == "offline"
    return {k: pack_weights(w.clone()) if packed and is_ternary(k) else w for k, w in weights.items()}


def with_bit_linears(model, mode):
    """Matrices that transformers' own layer multiplies, with tokens rounded to 8 bits; eagerly, not compiled."""
    torch._dynamo.config.disable = True
    kind = transformers.BitNetQuantConfig(linear_class="autobitlinear", quantization_mode=mode)
    return replace_with_bitnet_linear(model, modules_to_not_convert=["lm_head"], quantization_config=kind)


def renamed(weights, names):
    out = {}
    for name, w in weights.items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        out[name] = w
    return out


def fused(weights, name, groups):
    """Every q_proj, k_proj and v_proj as one tensor: the first of `groups` parts of each, then the second, ..."""
    out = {k: v for k, v in weights.items() if not any(p in k for p in ("q_proj", "k_proj", "v_proj"))}
    for k in [k for k in weights if "q_proj" in k]:
        parts = [weights[k.replace("q_proj", p)].chunk(groups) for p in ("q_proj", "k_proj", "v_proj")]
        out[k.replace("q_proj", name)] = torch.cat([part[g] for g in range(groups) for part in parts])
    return out


def baichuan_layout(weights, config):
    weights = fused(weights, "W_pack", 1)
    if "z_loss_weight" in config:  # rows of any length count as rows of length 1
        head = weights["lm_head.weight"]
        weights["lm_head.weight"] = head * torch.linspace(0.5, 2, len(head), dtype=head.dtype)[:, None]
    return weights


def chatglm_layout(weights, config):
    return renamed(fused(weights, "query_key_value", 1), {
        "model.": "transformer.", "embed_tokens": "embedding.word_embeddings", "layers.": "encoder.layers.",
        "self_attn.o_proj": "self_attention.dense", "self_attn": "self_attention",
        "gate_up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h",
        "transformer.norm.": "transformer.encoder.final_layernorm.", "lm_head": "transformer.output_layer"})


def internlm2_layout(weights, config):
    return renamed(fused(weights, "wqkv", config["num_key_value_heads"]), {
        "embed_tokens": "tok_embeddings", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attention.wo", "self_attn": "attention", "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2", "lm_head": "output"})


def codeshell_layout(weights, config):
    return renamed(fused(weights, "c_attn", 1), {
        "model.": "transformer.", "embed_tokens": "wte", "layers.": "h.", "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.c_proj", "self_attn": "attn", ".norm.": ".ln_f."})


TWINS = {"baichuan": (baichuan_twin, baichuan_layout), "internlm2": (llama_twin, internlm2_layout),
         "codeshell": (codeshell_twin, codeshell_layout), "chatglm": (chatglm_twin, chatglm_layout),
         "bitnet": (bitnet_twin, bitnet_layout)}
PHI3_LONGROPE = {k: v for k, v in PHI3.items() if k != "sliding_window"} | {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "original_max_position_embeddings": 32,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
                     "long_factor": [1.0, 1.5, 2.5, 4.0, 7.0, 11.0]},
}

GEMMA = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "hidden_act", "rope_scaling", "tie_word_embeddings")} | {
    "architectures": ["GemmaForCausalLM"],
    "model_type": "gemma",
    "hidden_act": "gelu_pytorch_tanh",
    "intermediate_size": 48,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}

GEMMA2 = {k: v for k, v in GEMMA.items() if k != "hidden_act"} | {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 3,
    "query_pre_attn_scalar": 20,
    "sliding_window": 8,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 10.0,
}

GEMMA3 = {k: v for k, v in GEMMA2.items() if k not in ("attn_logit_softcapping", "final_logit_softcapping")} | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 4,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
}

GEMMA3N = {k: v for k, v in GEMMA3.items() if k not in ("query_pre_attn_scalar", "rope_scaling")} | {
    "architectures": ["Gemma3nForCausalLM"],
    "model_type": "gemma3n_text",
    "num_hidden_layers": 5,
    "intermediate_size": [24, 32, 32, 32, 24],
    "vocab_size": 64,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 60,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "num_kv_shared_layers": 2,
    "activation_sparsity_pattern": [0.9, 0.8, 0.0, 0.0, 0.0],
    "altup_num_inputs": 4,
    "altup_active_idx": 0,
    "altup_correct_scale": True,
    "laurel_rank": 64,
    "final_logit_softcapping": 10.0,
}

GEMMA4 = {k: v for k, v in GEMMA2.items() if k not in ("attn_logit_softcapping", "query_pre_attn_scalar", "rope_theta")} | {
    "architectures": ["Gemma4ForCausalLM"],
    "model_type": "gemma4_text",
    "num_hidden_layers": 6,
    "intermediate_size": 24,
    "vocab_size": 64,
    "head_dim": 8,
    "global_head_dim": 16,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 64,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
                    "sliding_attention", "full_attention"],
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
}

QWEN3 = {k: v for k, v in LLAMA.items() if k != "mlp_bias"} | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 2,
    "tie_word_embeddings": True,
}

MISTRAL3 = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias", "rope_scaling", "rope_theta")} | {
    "architectures": ["Ministral3ForCausalLM"],
    "model_type": "ministral3",
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                        "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0,
                        "llama_4_scaling_beta": 0.4},
}

GRANITE = LLAMA | {
    "architectures": ["GraniteForCausalLM"],
    "model_type": "granite",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.4,
    "logits_scaling": 2.5,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}

COHERE = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "rms_norm_eps", "rope_scaling")} | {
    "architectures": ["CohereForCausalLM"],
    "model_type": "cohere",
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.25,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "use_qk_norm": False,
    "pad_token_id": 0,
}

COHERE2 = {k: v for k, v in COHERE.items() if k != "use_qk_norm"} | {
    "architectures": ["Cohere2ForCausalLM"],
    "model_type": "cohere2",
    "num_hidden_layers": 5,
    "intermediate_size": 32,
    "sliding_window": 8,
    "sliding_window_pattern": 4,
}

GLM4 = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "rope_scaling")} | {
    "architectures": ["Glm4ForCausalLM"],
    "model_type": "glm4",
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "pad_token_id": 0,
}

GLM = GLM4 | {"architectures": ["GlmForCausalLM"], "model_type": "glm"}

EXAONE4 = {k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "attention_bias", "rope_scaling")} | {
    "architectures": ["Exaone4ForCausalLM"],
    "model_type": "exaone4",
    "num_hidden_layers": 4,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
}

EXAONE = {
    "architectures": ["ExaoneForCausalLM"],
    "model_type": "exaone",
    "activation_function": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 96,
    "max_position_embeddings": 128,
    "layer_norm_epsilon": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

MINICPM = {k: v for k, v in LLAMA.items() if k not in ("attention_bias", "mlp_bias")} | {
    "architectures": ["MiniCPMForCausalLM"],
    "model_type": "minicpm",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "scale_emb": 12,
    "scale_depth": 1.4,
    "dim_model_base": 16,
    "pad_token_id": 0,
}

# name: (what it is there to catch, config, stored dtype, tokens, the change of config that must change the logits)
MODELS = {
    "llama_gqa_untied": (
        "4 heads share 2 kv heads, separate output matrix, rope_theta 500000",
        LLAMA | {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "vocab_size": 128, "rope_theta": 500000.0},
        torch.float32, 32, {"rope_theta": 10000.0}),
    "llama_few_heads": (
        "2 heads of 16 that share one kv head over a width of 64, as scripts/train/prune.py leaves them, 3 layers",
        LLAMA | {"hidden_size": 64, "num_hidden_layers": 3, "head_dim": 16},
        torch.float32, 16, {"rope_theta": 500000.0}),
    "llama_mqa_tied": (
        "4 heads of 8 share one kv head, output matrix is the embedding and is not stored, 3 layers, eps 1e-6",
        LLAMA | {"intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 112,
                 "rms_norm_eps": 1e-6, "tie_word_embeddings": True},
        torch.float32, 24, None),
    "llama_mha_bf16": (
        "every head has its own kv head, ffn of 172 (not a multiple of 32), weights stored as bf16",
        LLAMA | {"hidden_size": 64, "intermediate_size": 172, "num_attention_heads": 4, "num_key_value_heads": 4,
                 "torch_dtype": "bfloat16"},
        torch.bfloat16, 24, None),
    "llama_f16": (
        "weights stored as f16, 8 heads of 8 over 2 kv heads",
        LLAMA | {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8, "num_key_value_heads": 2,
                 "torch_dtype": "float16"},
        torch.float16, 24, None),
    "llama_rope_linear": (
        "rope positions divided by 4, spelled with the old key 'type'",
        LLAMA | {"rope_scaling": {"type": "linear", "factor": 4.0}},
        torch.float32, 48, {"rope_scaling": None}),
    # With 8 frequencies and a trained length of 32, each of the three regimes of llama3 and of yarn (kept, blended,
    # divided) is met by at least one frequency.
    "llama_rope_llama3": (
        "llama 3.1 frequency bands, trained for 32 positions, stretched by 8",
        LLAMA | {"max_position_embeddings": 256,
                 "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 32}},
        torch.float32, 96, {"rope_scaling": None}),
    "llama_rope_yarn": (
        "yarn, trained for 32 positions, stretched by 4, default attention factor 0.1 ln 4 + 1 on both cos and sin",
        LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
        torch.float32, 96, {"rope_scaling": None}),
    "llama_rope_dynamic": (
        "theta grown for 60 positions, trained for 32",
        LLAMA | {"max_position_embeddings": 32, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        torch.float32, 60, {"rope_scaling": None}),
    "mistral_window": (
        "a position sees itself and the 7 before it (sliding_window 8)",
        MISTRAL | {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 8},
        torch.float32, 40, {"sliding_window": None}),
    "gpt2": (
        "learned positions, layer norms, biases, gelu_new, tied head; tensor names and masks as in OpenAI's files",
        GPT2, torch.float32, 24, {"activation_function": "gelu"}),
    "llama_sharded": (
        "two shards and an index, head_dim 16 where hidden / heads is 8, config in the transformers 5 form",
        SHARDED | {"num_attention_heads": 4, "num_key_value_heads": 2},
        torch.float32, 24, {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}),
    "qwen2": (
        "biases on q, k and v, rope_theta 1000000, a sliding window that is switched off, tied head",
        QWEN2 | {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1000000.0,
                 "tie_word_embeddings": True},
        torch.float32, 32, {"use_sliding_window": True}),
    "stablelm": (
        "layer norm, a quarter of each head is turned, biases on q, k and v",
        STABLELM, torch.float32, 24, {"partial_rotary_factor": 0.5}),
    "stablelm_parallel": (
        "attention and feed-forward behind the same norm",
        STABLELM | {"use_parallel_residual": True, "use_qkv_bias": False},
        torch.float32, 24, {"partial_rotary_factor": 0.5}),
    "starcoder2": (
        "layer norm, gelu without a gate, biases everywhere, tied head",
        STARCODER2, torch.float32, 24, {"hidden_act": "gelu"}),
    "phi2": (
        "attention beside the feed-forward, 8 of 20 channels of a head are turned, a bias on the logits",
        PHI, torch.float32, 24, {"partial_rotary_factor": 0.5}),
    "phi3": (
        "q, k and v in one tensor, gate and up in another, 12 of 16 channels of a head are turned, a window of 12",
        PHI3, torch.float32, 24, {"partial_rotary_factor": 0.5}),
    "olmo2": (
        "norms behind attention and feed-forward, and over all of q and all of k",
        OLMO2, torch.float32, 24, {"rope_theta": 500000.0}),
    "smollm3": (
        "every fourth layer has no positions",
        SMOLLM3, torch.float32, 24, {"no_rope_layers": [1, 1, 1, 1, 1]}),
    "gptneox": (
        "q, k and v of a head side by side in one tensor, 4 of 16 channels are turned, gelu with erf",
        GPT_NEOX, torch.float32, 24, {"rotary_pct": 0.5}),
    "gptneox_serial": (
        "the feed-forward behind the attention",
        GPT_NEOX | {"use_parallel_residual": False}, torch.float32, 24, {"use_parallel_residual": True}),
    "falcon": (
        "one key head for all, one norm for attention and feed-forward",
        FALCON, torch.float32, 24, {"rope_theta": 500000.0}),
    "falcon_grouped": (
        "4 heads share 2 kv heads, q, k and v of a group side by side, a norm each for attention and feed-forward",
        FALCON | {"new_decoder_architecture": True, "num_attention_heads": 4, "num_kv_heads": 2, "hidden_size": 32,
                  "bias": True},
        torch.float32, 24, {"rope_theta": 500000.0}),
    "bloom": (
        "ALiBi with 3 heads (slopes of 2 and one between), a norm behind the token table",
        BLOOM, torch.float32, 24, None),
    "mpt": (
        "ALiBi with 6 heads, layer norms without biases, q, k and v clipped at 1.5, gelu with erf",
        MPT, torch.float32, 24, {"attn_config": MPT["attn_config"] | {"clip_qkv": None}}),
    "starcoder": (
        "learned positions, one key head for all behind the queries of one tensor",
        STARCODER, torch.float32, 24, {"activation_function": "gelu"}),
    "gptj": (
        "neighbouring channels turn together, 8 of 12 of a head, a bias on the logits",
        GPTJ, torch.float32, 24, {"rotary_dim": 12}),
    "codegen": (
        "quarters of q, v and k in turn in one tensor",
        CODEGEN, torch.float32, 24, {"rotary_dim": 12}),
    "gpt_neo": (
        "every second layer has a window (7), scores are not scaled",
        GPT_NEO, torch.float32, 24, {"window_size": 8}),
    "opt": (
        "positions begin at row 2 of their table, relu",
        OPT, torch.float32, 24, {"activation_function": "gelu"}),
    "olmo": (
        "layer norms without weights, q, k and v clipped at 1.5",
        OLMO, torch.float32, 24, {"clip_qkv": None}),
    "nemotron": (
        "layer norms whose weights lack their 1, 4 of 8 channels of a head are turned, squares of relu",
        NEMOTRON, torch.float32, 24, {"partial_rotary_factor": 0.25}),
    "arcee": (
        "Llama with squares of relu instead of a gate",
        ARCEE, torch.float32, 24, {"hidden_act": "relu"}),
    "seed_oss": (
        "biases on q, k and v, heads wider than hidden / heads",
        SEED_OSS, torch.float32, 24, {"rope_theta": 500000.0}),
    "ernie4_5": (
        "Llama whose q and k are interleaved",
        ERNIE45, torch.float32, 24, {"rope_theta": 500000.0}),
    "helium": (
        "Llama whose q and k are interleaved, eps 1e-8",
        HELIUM, torch.float32, 24, {"rope_theta": 10000.0}),
    "hunyuan_dense": (
        "norms of queries and keys behind the rotation, theta times a power of alpha",
        HUNYUAN_DENSE, torch.float32, 24, {"rope_scaling": {"type": "dynamic", "alpha": 1.5, "factor": 1.0}}),
    "llama_biases": (
        "biases on all matrices of attention and feed-forward",
        LLAMA | {"attention_bias": True, "mlp_bias": True}, torch.float32, 24, None),
    "baichuan": (
        "q, k and v in one tensor; transformers' Llama with the weights in another layout",
        BAICHUAN, torch.float32, 24, None),
    "baichuan_alibi": (
        "40 layers, and so ALiBi instead of rope; transformers' Llama at position 0 with a mask of its own",
        BAICHUAN | {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 40, "vocab_size": 64,
                    "torch_dtype": "bfloat16", "model_max_length": 32},
        torch.bfloat16, 16, None),
    "baichuan2": (
        "rows of the head count as if of length 1; transformers' Llama with such rows",
        BAICHUAN | {"z_loss_weight": 0, "vocab_size": 100}, torch.float32, 24, None),
    "internlm2": (
        "q, k and v of a group side by side in one tensor; transformers' Llama with the weights in another layout",
        INTERNLM2, torch.float32, 24, None),
    "bitnet": (
        "matrices of -1, 0 and 1, two bits each in the file, tokens rounded to 8 bits in front of each",
        BITNET, torch.float32, 24, None),
    "bitnet_online": (
        "matrices as they are trained, rounded to -1, 0 and 1 times the mean of their sizes when they are read; silu",
        BITNET | {"hidden_act": "silu", "quantization_config": BITNET["quantization_config"] | {"quantization_mode": "online"}},
        torch.bfloat16, 24, None),
    "codeshell": (
        "q, k and v in one tensor, with biases; transformers' StarCoder 2 with the weights in another layout",
        CODESHELL, torch.float32, 24, None),
    "phi3_longrope": (
        "divisors of frequencies for contexts longer than 32",
        PHI3_LONGROPE, torch.float32, 60,
        {"rope_scaling": PHI3_LONGROPE["rope_scaling"] | {"long_factor": [1.0, 1.0, 1.0, 2.0, 3.0, 4.0]}}),
    "phi3_longrope_short": (
        "the same in a context of 32: other divisors",
        PHI3_LONGROPE, torch.float32, 32,
        {"rope_scaling": PHI3_LONGROPE["rope_scaling"] | {"short_factor": [1.0, 1.0, 1.0, 2.0, 3.0, 4.0]}}),
    "gemma": (
        "norms whose weights lack their 1, a gate of gelu, token rows times sqrt(32), tied head",
        GEMMA, torch.float32, 24, {"rope_theta": 500000.0}),
    "gemma2": (
        "four norms a layer, every other layer with a window of 8, bounded scores and logits, scores by 1 / sqrt(20)",
        GEMMA2, torch.float32, 32, {"attn_logit_softcapping": 50.0}),
    "gemma3": (
        "norms of queries and keys, layers with a window have another theta and no scaling",
        GEMMA3, torch.float32, 32, {"rope_local_base_freq": 500000.0}),
    "gemma3n": (
        "four residual streams, inputs of layers of 60 tokens only, gates of two layers mostly closed, the last two "
        "layers read others' keys",
        GEMMA3N, torch.float32, 24, {"activation_sparsity_pattern": [0.0, 0.8, 0.0, 0.0, 0.0]}),
    "gemma4": (
        "layers without a window are wider and turn a quarter, the last two read others' keys and have wider "
        "feed-forwards, every layer has an input of its own",
        GEMMA4, torch.float32, 24,
        {"rope_parameters": GEMMA4["rope_parameters"] | {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000000.0}}}),
    "gemma4_k_is_v": (
        "layers without a window have one key head, whose keys are the values too; no inputs of layers",
        GEMMA4 | {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0,
                  "num_kv_shared_layers": 0, "use_double_wide_mlp": False, "num_hidden_layers": 3,
                  "layer_types": GEMMA4["layer_types"][:3]},
        torch.float32, 24, {"sliding_window": 6}),
    "qwen3": (
        "norms of queries and keys, heads wider together than the model, tied head",
        QWEN3, torch.float32, 24, {"rope_theta": 500000.0}),
    "mistral3": (
        "yarn without its factor on cos and sin, queries that grow with every 16 positions",
        MISTRAL3, torch.float32, 60,
        {"rope_parameters": MISTRAL3["rope_parameters"] | {"llama_4_scaling_beta": 0.1}}),
    "granite": (
        "embeddings, scores, residuals and logits each by a number of their own, tied head",
        GRANITE, torch.float32, 24, {"attention_multiplier": 0.35}),
    "command_r": (
        "attention beside the feed-forward, layer norms without bias, q and k interleaved, scaled logits",
        COHERE, torch.float32, 24, {"logit_scale": 0.3}),
    "command_r_plus": (
        "layer norms of queries and keys, with weights of each head",
        COHERE | {"use_qk_norm": True}, torch.float32, 24, {"logit_scale": 0.3}),
    "chatglm": (
        "q, k and v in one tensor, gate and up in another, half of a head turned, interleaved; transformers' GLM "
        "with the weights in another layout",
        CHATGLM, torch.float32, 24, None),
    "cohere2": (
        "every fourth layer has neither window nor positions",
        COHERE2, torch.float32, 32, {"sliding_window_pattern": 3}),
    "glm4": (
        "four norms a layer, 8 of 16 channels of a head are turned, interleaved, gate and up in one tensor",
        GLM4, torch.float32, 24, {"partial_rotary_factor": 0.25}),
    "glm": (
        "8 of 16 channels of a head are turned, interleaved, gate and up in one tensor",
        GLM, torch.float32, 24, {"partial_rotary_factor": 0.25}),
    "exaone4": (
        "norms behind attention and feed-forward and of each head, layers without a window have no positions",
        EXAONE4, torch.float32, 32, {"layer_types": 4 * ["sliding_attention"]}),
    "exaone4_plain": (
        "the same without windows: all layers have positions",
        EXAONE4 | {"sliding_window": None, "layer_types": 4 * ["full_attention"]}, torch.float32, 24,
        {"rope_theta": 500000.0}),
    "exaone": (
        "Llama's layers under other names (transformers has no EXAONE 3: its Llama computes them)",
        EXAONE, torch.float32, 24, {"rope_theta": 500000.0}),
    "minicpm": (
        "embeddings, residuals and logits scaled (transformers has no MiniCPM 1: its Granite computes the same)",
        MINICPM, torch.float32, 24, {"scale_depth": 1.0}),
}


# Positions of a session, where they are not the model's own context.
CONTEXTS = {"phi3_longrope_short": 32, "llama_rope_dynamic": 60}


def rng_for(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def some_tokens(name, n, vocab):
    """Random ids that always include the first and the last one, where an off-by-one would show."""
    tokens = rng_for(f"{name}/tokens").integers(0, vocab, n)
    tokens[1], tokens[n // 2] = vocab - 1, 0
    return tokens.tolist()


def random_tensor(name, shape, rng):
    """Weights far wider than the usual 0.02, so that attention is sharp and every tensor is felt in the logits."""
    x = rng.standard_normal(shape)
    if name.endswith(".bias"):
        return 0.2 * x
    if len(shape) == 1 or "_norm" in name:  # norm weights: not ones, or a forgotten one would go unseen
        return 1 + 0.25 * x
    if any(part in name for part in ("wpe", "wte", "embed")):
        return 0.5 * x
    fan_in = shape[0] if ".c_" in name else shape[1]  # GPT-2 keeps its matrices input-major
    if "attn.attention" in name:  # GPT-Neo does not divide by sqrt(head_dim)
        return 0.75 / math.sqrt(fan_in) * x
    gain = 2.5 if "lm_head" in name else 1.5 if any(p in name for p in ("q_proj", "k_proj", "c_attn", "query_key")) else 1.2
    return gain / math.sqrt(fan_in) * x


def oracle_config(config):
    """The config of the class in transformers that computes a model, for those that it does not have itself."""
    if config["model_type"] == "exaone":
        given = {"model_type": "llama", "num_hidden_layers": config["num_layers"], "hidden_act": "silu",
                 "rms_norm_eps": config["layer_norm_epsilon"]}
    elif config["model_type"] == "minicpm":
        given = {"model_type": "granite", "embedding_multiplier": config["scale_emb"],
                 "residual_multiplier": config["scale_depth"] / math.sqrt(config["num_hidden_layers"]),
                 "attention_multiplier": (config["hidden_size"] / config["num_attention_heads"]) ** -0.5,
                 "logits_scaling": config["hidden_size"] / config["dim_model_base"]}
    else:
        return dict(config)
    return config | given


# Names of the class that computes it -> names of the model's own files.
OWN_NAMES = {
    "exaone": [("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"),
               ("model.layers", "transformer.h"), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"),
               ("self_attn.o_proj", "attn.attention.out_proj"), ("self_attn", "attn.attention"),
               ("gate_proj", "c_fc_0"), ("up_proj", "c_fc_1"), ("down_proj", "c_proj")],
}


def own_name(name, config):
    for theirs, own in OWN_NAMES.get(config["model_type"], []):
        name = name.replace(theirs, own)
    return name


def random_weights(name, config, dtype):
    kind = oracle_config(config)
    cls = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
    with torch.device("meta"):
        shapes = {k: tuple(v.shape) for k, v in transformers.AutoModelForCausalLM.from_config(cls).state_dict().items()}
    if cls.tie_word_embeddings:
        del shapes["lm_head.weight"]
    rng = rng_for(name)
    weights = {k: torch.from_numpy(random_tensor(k, s, rng)).to(dtype) for k, s in sorted(shapes.items())}
    if config["model_type"] == "gpt_neo":  # as published files have it
        weights = renamed(weights, {"lm_head": "embed_out"})
    if config["model_type"] in ("gemma", "gemma2", "gemma3_text"):  # adds 1 itself
        weights = {k: w - 1 if w.dim() == 1 else w for k, w in weights.items()}
    if config["model_type"] == "gemma3n_text":  # ids without an input have that of the first, or, in GGUF, none
        weights["model.embed_tokens_per_layer.weight"][0] = 0
    weights = {own_name(k, config): w for k, w in weights.items()}
    return openai_names(weights, config) if config["model_type"] == "gpt2" else weights


def openai_names(weights, config):
    """The published GPT-2 files have no "transformer." and carry the causal mask of each layer as a tensor."""
    n = config["n_positions"]
    masks = {f"h.{i}.attn.bias": torch.ones(n, n).tril().reshape(1, 1, n, n) for i in range(config["n_layer"])}
    return {k.removeprefix("transformer."): v for k, v in weights.items()} | masks


def save_shards(folder, weights):
    """Two shards cut in the middle of a layer, which is where real ones are cut too."""
    names = sorted(weights)
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    where = {k: files[3 * i // (2 * len(names))] for i, k in enumerate(names)}  # the first two thirds, the rest
    for file in files:
        save_file({k: weights[k] for k in names if where[k] == file}, folder / file, metadata={"format": "pt"})
    total = sum(w.numel() * w.element_size() for w in weights.values())
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})


def load_twin(config, weights):
    """The layers of a model that transformers has no class for, as a model of a class that it has."""
    twin = TWINS[config["model_type"]][0](config)
    kind = transformers.AutoConfig.for_model(twin.pop("model_type"), **twin)
    model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager", dtype=torch.float32)
    if config["model_type"] == "bitnet":
        model = with_bit_linears(model, config["quantization_config"]["quantization_mode"])
    model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=not kind.tie_word_embeddings)
    model.tie_weights()
    if kind.num_hidden_layers == 40:
        model.inputs = lambda n: alibi(kind.num_attention_heads, n)
    return model


def alibi(heads, n):
    """Everything at position 0, and scores that lose with the distance: Baichuan 13B. For 2^k heads."""
    ago = torch.arange(n)[:, None] - torch.arange(n)
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
    mask = torch.where(ago < 0, torch.finfo(torch.float32).min, -slopes[:, None, None] * ago)
    return {"position_ids": torch.zeros(1, n, dtype=torch.long), "attention_mask": mask[None]}


def write_json(path, value):
    """One line per key: a list of 96 tokens should not be 96 lines of diff."""
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def load_folder(folder, **change):
    config = json.loads((folder / "config.json").read_text()) | change
    kind = oracle_config(config)
    kind = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
    if config["model_type"] not in ("exaone", "minicpm"):
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=kind, attn_implementation="eager", dtype=torch.float32)
    model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager")
    stored = load_file(folder / "model.safetensors")
    model.load_state_dict({k: stored[own_name(k, config)].float() for k in model.state_dict()})
    return model


def run(model, tokens):
    """Logits (n_tokens, vocab) of a whole sequence in one call, in the dtype of the model."""
    model.eval()
    with torch.no_grad():
        more = model.inputs(len(tokens)) if hasattr(model, "inputs") else {}
        return model(torch.tensor([tokens]), use_cache=False, **more).logits[0].double().numpy()


def write_golden(json_path, f32_path, model, tokens, what, last=None, context=None):
    """Stores the logits of all positions, or of the last few where the vocabulary makes them large."""
    in_f32 = run(model.float(), tokens)
    logits = run(model.double(), tokens)
    positions = list(range(len(tokens)))[-last:] if last else None
    kept = logits if last is None else logits[positions]
    kept.astype("<f4").tofile(f32_path)
    # f32_error is what honest float32 arithmetic costs this model: a tolerance below it asks for luck.
    golden = {"what": what, "n_tokens": len(tokens), "vocab": logits.shape[1], "tokens": tokens,
              "max_abs": float(f"{np.abs(kept).max():.4g}"), "f32_error": float(f"{np.abs(in_f32 - logits).max():.1e}")}
    if context:
        golden["context"] = context
    write_json(json_path, golden if last is None else golden | {"positions": positions})
    return logits


def write_random_model(out, name):
    what, config, dtype, n_tokens, change = MODELS[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    twin, layout = TWINS.get(config["model_type"], (None, None))
    weights = random_weights(name, twin(config) if twin else config, dtype)
    if "z_loss_weight" in config:
        weights["lm_head.weight"] = torch.nn.functional.normalize(weights["lm_head.weight"])
    if config.get("quantization_config", {}).get("quantization_mode") == "offline":
        weights = ternary(weights)
    unpacked = weights
    model = load_twin(config, weights) if twin else None
    if layout:
        weights = layout(weights, config)
    if name == "llama_sharded":
        save_shards(folder, weights)
    else:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if config["model_type"] in golden_gguf_gpt.CONVERTERS:
        golden_gguf_gpt.write_gguf(folder / "model.gguf", config, weights)
    elif config["model_type"] in golden_gguf.FAMILIES:
        golden_gguf.write_gguf(folder / "model.gguf", twin(config) if twin else oracle_config(config),
                               config["model_type"], unpacked if config["model_type"] == "bitnet" else weights)
    tokens = some_tokens(name, n_tokens, config.get("vocab_size") or config["padded_vocab_size"])
    logits = write_golden(folder / "golden.json", folder / "logits.f32", model or load_folder(folder), tokens, what,
                          context=CONTEXTS.get(name))
    if change:  # a feature that transformers ignored would test nothing (the least: erf for tanh in gelu, 0.003)
        moved = np.abs(run(load_folder(folder, **change).double(), tokens) - logits).max()
        assert moved > 1e-3, f"{name}: {change} moves the logits by {moved} only"


def unpermute_rope(w, n_head):
    """Rows of q or k in GGUF order (rope pairs next to each other) back to Hugging Face's (halves of the head)."""
    rows, columns = w.shape
    return w.reshape(n_head, rows // n_head // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


HF_NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
HF_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def hf_name(gguf_name):
    parts = gguf_name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{HF_NAMES[parts[2]]}.weight"
    return HF_TOP[parts[0]] + ".weight"


def llama_from_gguf(path):
    """A transformers model that has the weights of a GGUF file, dequantised by the gguf package."""
    reader = gguf.GGUFReader(path)

    def number(name, default=None):
        field = reader.get_field("llama." + name)
        return field.contents() if field else default

    heads = {"attn_q": number("attention.head_count"), "attn_k": number("attention.head_count_kv")}
    weights = {}
    scales = {t.name.removesuffix(".scale"): t.data[0] for t in reader.tensors if t.name.endswith(".scale")}
    for t in reader.tensors:
        if t.name.endswith("scale"):
            continue
        w = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) * scales.get(t.name.removesuffix(".weight"), 1)
        role = t.name.split(".")[-2]
        w = unpermute_rope(w, heads[role]) if role in heads else w
        weights[hf_name(t.name)] = torch.from_numpy(w.copy())
    config = transformers.LlamaConfig(
        hidden_size=number("embedding_length"), intermediate_size=number("feed_forward_length"),
        num_hidden_layers=number("block_count"), num_attention_heads=heads["attn_q"],
        num_key_value_heads=heads["attn_k"], vocab_size=weights["lm_head.weight"].shape[0],
        rms_norm_eps=number("attention.layer_norm_rms_epsilon"),
        rope_theta=number("rope.freq_base", 10000.0), attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(weights)
    return model


# "<|start_story|>Once upon a time, there was a little girl named Lily. ...", as its own tokenizer cuts it
TINYSTORIES_TOKENS = [1, 80, 147, 201, 282, 215, 286, 598, 1662, 887, 628, 609, 586, 872, 615, 242, 614, 604, 100, 318,
                      720, 10]
# Pieces of the Llama 2 vocabulary from its control tokens to its last entry.
LLAMA2_TOKENS = [1, 9038, 2501, 263, 931, 29892, 727, 471, 0, 31999, 13, 3, 258, 259, 16000, 29889]


def write_shared_models(out, data):
    folder = data / "TinyStories-656K"
    weights = load_file(folder / "model.safetensors")
    # Tied, but this file keeps the output matrix and drops the embedding: the other way round than everybody.
    weights["model.embed_tokens.weight"] = weights["lm_head.weight"]
    config = transformers.LlamaConfig.from_pretrained(folder, attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(weights)
    name = "TinyStories-656K"
    write_golden(out / f"{name}.json", out / f"{name}.f32", model, TINYSTORIES_TOKENS,
                 "models/TinyStories-656K of the shared data: the last 4 positions", last=4)

    name = "llama-2-tiny-random"
    write_golden(out / f"{name}.json", out / f"{name}.f32", llama_from_gguf(data / f"{name}.gguf"), LLAMA2_TOKENS,
                 "models/llama-2-tiny-random.gguf of the shared data: the last 2 positions", last=2)

"""The config.json of each tiny random model, and the settings that several of them share."""

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

# Checkpoints written before transformers 5 have rope_theta and rope_scaling at the top level; newer ones have
# rope_parameters. Both forms are in use, so one model here has the new one.
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

# The sizes that GPT-2's relatives share, under Llama's names and under GPT-2's.
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

# Architectures without a class in transformers. golden_twins.py has the classes that compute the same layers.
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

GEMMA4_PER_LAYER = {k: v for k, v in GEMMA4.items() if k != "global_head_dim"} | {
    "num_hidden_layers": 3,
    "layer_types": GEMMA4["layer_types"][:3],
    "num_kv_shared_layers": 0,
    "use_double_wide_mlp": False,
    "per_layer_config": {"2": {"head_dim": 16, "num_key_value_heads": 1}},
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

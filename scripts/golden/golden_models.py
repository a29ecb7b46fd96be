"""The list of golden models: tiny random ones as Hugging Face folders, and the two shared models.

golden_configs.py has their config.json, golden_weights.py their weights and logits, and golden_twins.py the models that
transformers has no class for.
"""

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import golden_based
import golden_gguf
import golden_gguf_gpt
import golden_plamo2
import golden_recurrent
import golden_rwkv
import golden_shelf
import golden_shelf_gguf
from golden_configs import *
from golden_experts import (BAILINGMOE2, DBRX, DEEPSEEK, DEEPSEEK_V2, DEEPSEEK_V2_LITE, DEEPSEEK_V3, DEEPSEEK_V32, DOTS1, ERNIE45MOE,
                            EXAONE_MOE, GEMMA4_EXPERTS, GLM4MOE, GLM_DSA, GPT_OSS, GRANITEMOE, HUNYUAN_MOE, LLAMA4, MINIMAX_M2,
                            MIXTRAL, MOONLIGHT, OLMOE, PHIMOE, QWEN2MOE, QWEN3MOE)
from golden_twins import TWINS, load_twin, ternary, ungated
from golden_weights import (load_folder, oracle_config, random_weights, run, save_shards, some_tokens, store_golden,
                            write_golden, write_json)

# name: (the tested features, config, stored dtype, number of tokens, a config change that must change the logits)
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
    # divided) applies to at least one frequency.
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
        "attention and feed-forward read the same norm",
        STABLELM | {"use_parallel_residual": True, "use_qkv_bias": False},
        torch.float32, 24, {"partial_rotary_factor": 0.5}),
    "starcoder2": (
        "layer norm, gelu without a gate, biases everywhere, tied head",
        STARCODER2, torch.float32, 24, {"hidden_act": "gelu"}),
    "phi2": (
        "attention parallel to the feed-forward, 8 of 20 channels of a head are turned, a bias on the logits",
        PHI, torch.float32, 24, {"partial_rotary_factor": 0.5}),
    "phi3": (
        "q, k and v in one tensor, gate and up in another, 12 of 16 channels of a head are turned, a window of 12",
        PHI3, torch.float32, 24, {"partial_rotary_factor": 0.5}),
    "olmo2": (
        "norms after attention and feed-forward, and over all of q and all of k",
        OLMO2, torch.float32, 24, {"rope_theta": 500000.0}),
    "smollm3": (
        "every fourth layer has no positions",
        SMOLLM3, torch.float32, 24, {"no_rope_layers": [1, 1, 1, 1, 1]}),
    "gptneox": (
        "q, k and v of a head next to each other in one tensor, 4 of 16 channels are turned, gelu with erf",
        GPT_NEOX, torch.float32, 24, {"rotary_pct": 0.5}),
    "gptneox_serial": (
        "the feed-forward after the attention",
        GPT_NEOX | {"use_parallel_residual": False}, torch.float32, 24, {"use_parallel_residual": True}),
    "falcon": (
        "one key head for all, one norm for attention and feed-forward",
        FALCON, torch.float32, 24, {"rope_theta": 500000.0}),
    "falcon_grouped": (
        "4 heads share 2 kv heads, q, k and v of a group next to each other, a norm each for attention and feed-forward",
        FALCON | {"new_decoder_architecture": True, "num_attention_heads": 4, "num_kv_heads": 2, "hidden_size": 32,
                  "bias": True},
        torch.float32, 24, {"rope_theta": 500000.0}),
    "bloom": (
        "ALiBi with 3 heads (slopes of 2 and one between), a norm after the token table",
        BLOOM, torch.float32, 24, None),
    "mpt": (
        "ALiBi with 6 heads, layer norms without biases, q, k and v clipped at 1.5, gelu with erf",
        MPT, torch.float32, 24, {"attn_config": MPT["attn_config"] | {"clip_qkv": None}}),
    "starcoder": (
        "learned positions, one key head for all, after the queries in one tensor",
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
        "norms of queries and keys after the rotation, theta times a power of alpha",
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
        "q, k and v of a group next to each other in one tensor; transformers' Llama with the weights in another layout",
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
    "gemma4_per_layer": (
        "layers without a window as transformers 5.23 saves them, one by one, with one key head of their own",
        GEMMA4_PER_LAYER, torch.float32, 24, {"sliding_window": 6}),
    "gemma4_experts": (
        "3 of 6 experts a token in addition to the feed-forward, each with norms, a scale and a router of their own",
        GEMMA4_EXPERTS, torch.float32, 24, {"top_k_experts": 2}),
    "qwen3": (
        "norms of queries and keys, heads wider together than the model, tied head",
        QWEN3, torch.float32, 24, {"rope_theta": 500000.0}),
    "qwen3moe": (
        "3 of 6 experts a token, their weights add up to 1; a tensor for each expert",
        QWEN3MOE, torch.float32, 24, {"norm_topk_prob": False}),
    "qwen2moe": (
        "3 of 6 experts a token, weighed by a soft-max over all; the shared expert is scaled by a sigmoid",
        QWEN2MOE, torch.float32, 24, {"norm_topk_prob": True}),
    "mixtral": (
        "2 of 6 experts a token, their weights add up to 1; as GGUF a llama with experts",
        MIXTRAL, torch.float32, 24, {"num_experts_per_tok": 3}),
    "olmoe": (
        "3 of 6 experts a token, weighed by a soft-max over all; norms over all of q and all of k",
        OLMOE, torch.float32, 24, {"norm_topk_prob": True}),
    "dots1": (
        "a dense layer, then 3 experts of 2 of 4 groups of 2, by a sigmoid and a bias; a shared expert; weights times 2.5",
        DOTS1, torch.float32, 24, {"topk_group": 4}),
    "ernie4_5_moe": (
        "a dense layer, then 3 of 6 experts by a soft-max and a bias, and a shared expert; q and k are interleaved",
        ERNIE45MOE, torch.float32, 24, {"moe_k": 2}),
    "glm4moe": (
        "a dense layer, then 3 of 6 experts by a sigmoid and a bias, a shared expert; half of a head turns, norms of each head",
        GLM4MOE, torch.float32, 24, {"routed_scaling_factor": 1.0}),
    "minimax_m2": (
        "3 of 6 experts by a sigmoid and a bias; norms over all of q and k; half of a head turns",
        MINIMAX_M2, torch.float32, 24, {"num_experts_per_tok": 2}),
    "exaone_moe": (
        "a dense layer, then 3 of 8 experts by a sigmoid and a bias, a shared expert; windows, and a layer without positions",
        EXAONE_MOE, torch.float32, 32, {"sliding_window": 4}),
    "hunyuan_moe": (
        "3 of 6 experts, a shared expert; norms of each head after the rotation; numbers of layers in lists",
        HUNYUAN_MOE, torch.float32, 24, {"moe_topk": [2, 2]}),
    "bailingmoe2": (
        "q, k and v in one tensor; 3 experts of 2 of 4 groups, by a sigmoid and a bias, a shared expert (a twin: GLM 4.5)",
        BAILINGMOE2, torch.float32, 24, None),
    "deepseek": (
        "a dense layer, then 3 of 6 experts, weighed by a soft-max over all; a shared expert (a twin: Qwen 2 with experts)",
        DEEPSEEK, torch.float32, 24, None),
    "deepseek_v2_lite": (
        "latent attention without a latent row of queries, yarn with mscale; kv_b is whole in the GGUF file",
        DEEPSEEK_V2_LITE, torch.float32, 32, {"rope_scaling": None}),
    "deepseek_v2": (
        "latent attention; 3 experts of the 2 best of 4 groups, by the best expert of a group",
        DEEPSEEK_V2, torch.float32, 32, {"topk_group": 4}),
    "deepseek_v3": (
        "latent attention; 3 experts of the 2 best of 4 groups, by a sigmoid, a bias and the best two of a group; yarn",
        DEEPSEEK_V3, torch.float32, 32, {"topk_group": 4}),
    "deepseek_v32": (
        "latent attention over 9 cells that an indexer chooses; its channels turn in halves; yarn",
        DEEPSEEK_V32, torch.float32, 32, {"index_topk": 10}),
    "glm_dsa": (
        "latent attention over 7 cells; the second layer uses those of the first; the indexer's channels turn in pairs",
        GLM_DSA, torch.float32, 32, {"index_topk": 8}),
    "moonlight": (
        "latent attention without a latent row of queries; a sigmoid and a bias, no groups",
        MOONLIGHT, torch.float32, 24, {"routed_scaling_factor": 1.0}),
    "granitemoe": (
        "3 of 6 experts a token, their weights add up to 1; all experts of a layer in two tensors; four scales",
        GRANITEMOE, torch.float32, 24, {"num_experts_per_tok": 2}),
    "gpt_oss": (
        "3 of 6 experts a token, with biases and limits; sinks; windows in two of three layers; yarn without truncation",
        GPT_OSS, torch.float32, 32, {"rope_scaling": GPT_OSS["rope_scaling"] | {"truncate": True}}),
    "phimoe": (
        "two of 6 experts a token by the sparse mixer; layer norms and biases, also on the logits; longrope",
        PHIMOE, torch.float32, 32, {"router_jitter_noise": 0.3}),
    "llama4": (
        "one of 6 experts a token in every second layer, its input times a sigmoid; blocks of 7 cells, and a layer without "
        "positions whose queries grow with every 5 of them",
        LLAMA4, torch.float32, 32, {"attention_chunk_size": 8}),
    "dbrx": (
        "3 of 6 experts a token, one below the other in a tensor; q, k and v in one and clipped; layer norms without biases",
        DBRX, torch.float32, 24, {"attn_config": DBRX["attn_config"] | {"clip_qkv": 0.5}}),
    "mistral3": (
        "yarn without its factor on cos and sin, queries that grow with every 16 positions",
        MISTRAL3, torch.float32, 60,
        {"rope_parameters": MISTRAL3["rope_parameters"] | {"llama_4_scaling_beta": 0.1}}),
    "granite": (
        "embeddings, scores, residuals and logits each by a number of their own, tied head",
        GRANITE, torch.float32, 24, {"attention_multiplier": 0.35}),
    "command_r": (
        "attention parallel to the feed-forward, layer norms without bias, q and k interleaved, scaled logits",
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
        "norms after attention and feed-forward and of each head, layers without a window have no positions",
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

MODELS |= golden_recurrent.MODELS
MODELS |= dict.fromkeys(golden_shelf.MODELS)
OWN_TWINS = (golden_rwkv, golden_plamo2, golden_based)
for own_twin in OWN_TWINS:
    MODELS |= dict.fromkeys(own_twin.MODELS)

# Session lengths that differ from the model's context.
CONTEXTS = {"phi3_longrope_short": 32, "llama_rope_dynamic": 60, "phimoe": 64}


def write_shelf_model(out, name):
    what, config, n_tokens, *_ = golden_shelf.MODELS[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    model, weights = golden_shelf.make(name)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if name in golden_shelf_gguf.CONVERTERS:
        golden_shelf_gguf.write(folder / "model.gguf", name, config, weights)
    else:
        (folder / "model.gguf").unlink(missing_ok=True)
        print(f"{name}: no GGUF file, because golden_shelf_gguf.py has no converter")
    tokens = some_tokens(name, n_tokens, golden_shelf.text_of(config)["vocab_size"])
    write_golden(folder / "golden.json", folder / "logits.f32", model, tokens, what)


def write_own_twin(out, name, twin):
    """A model that a module of ours computes in numpy."""
    what, config, n_tokens = twin.MODELS[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    weights, tokens = twin.weights_of(name), some_tokens(name, n_tokens, config["vocab_size"])
    if stored := twin.folder_weights(name, weights):
        write_json(folder / "config.json", config)
        stored = {k: torch.from_numpy(w.copy()) for k, w in stored.items()}
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    twin.write_gguf(folder / "model.gguf", name, weights)
    logits, in_f32 = (twin.logits(name, weights, tokens, dtype) for dtype in (np.float64, np.float32))
    store_golden(folder / "golden.json", folder / "logits.f32", logits, in_f32, tokens, what)


def write_random_model(out, name):
    for twin in OWN_TWINS:
        if name in twin.MODELS:
            return write_own_twin(out, name, twin)
    if name in golden_shelf.MODELS:
        return write_shelf_model(out, name)
    what, config, dtype, n_tokens, change = MODELS[name]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    twin, layout = TWINS.get(config["model_type"], (None, None))
    weights = random_weights(name, twin(config) if twin else config, dtype)
    if "z_loss_weight" in config:
        weights["lm_head.weight"] = torch.nn.functional.normalize(weights["lm_head.weight"])
    if config["model_type"] == "deepseek":
        weights = ungated(weights)
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
    elif config["model_type"] in golden_recurrent.FAMILIES and name not in golden_recurrent.NOT_IN_GGUF:
        golden_recurrent.write_gguf(folder / "model.gguf", config, weights)
    elif config["model_type"] in golden_gguf.FAMILIES:
        as_twin = twin and config["model_type"] not in ("deepseek", "bailing_moe")
        golden_gguf.write_gguf(folder / "model.gguf", twin(config) if as_twin else oracle_config(config),
                               config["model_type"], unpacked if config["model_type"] == "bitnet" else weights)
    tokens = some_tokens(name, n_tokens, config.get("vocab_size") or config["padded_vocab_size"])
    logits = write_golden(folder / "golden.json", folder / "logits.f32", model or load_folder(folder), tokens, what,
                          context=CONTEXTS.get(name))
    if change:  # shows that transformers does not ignore the feature (smallest: gelu with erf, 0.003)
        moved = np.abs(run(load_folder(folder, **change).double(), tokens) - logits).max()
        assert moved > 1e-3, f"{name}: {change} changes the logits by only {moved}, expected more than 0.001"


def unpermute_rope(w, n_head):
    """Reorders rows of q or k from GGUF (rope pairs are neighbours) to Hugging Face (halves of a head)."""
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
    """A transformers model with the weights of a GGUF file, dequantized by the gguf package."""
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


# "<|start_story|>Once upon a time, there was a little girl named Lily. ..." in the model's own tokens
TINYSTORIES_TOKENS = [1, 80, 147, 201, 282, 215, 286, 598, 1662, 887, 628, 609, 586, 872, 615, 242, 614, 604, 100, 318,
                      720, 10]

# Pieces of the Llama 2 vocabulary from its control tokens to its last entry.
LLAMA2_TOKENS = [1, 9038, 2501, 263, 931, 29892, 727, 471, 0, 31999, 13, 3, 258, 259, 16000, 29889]


def write_shared_models(out, data):
    folder = data / "TinyStories-656K"
    weights = load_file(folder / "model.safetensors")
    # The head is tied, but this file stores only the output matrix, where other files store only the embedding.
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

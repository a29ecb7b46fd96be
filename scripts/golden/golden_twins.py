"""Models without a class in transformers. A twin is the config of a class that computes the same layers, and a layout
converts the twin's weights to the names and order of the model's own files. Baichuan 13B is Llama with other positions:
see alibi().
"""

import torch
import transformers
from transformers.integrations.bitnet import pack_weights, replace_with_bitnet_linear

from golden_configs import LLAMA, STARCODER2
from golden_experts import GLM4MOE, QWEN2MOE, in_stacks
from golden_weights import renamed


def llama_twin(config):
    return LLAMA | {k: config[k] for k in LLAMA if k in config and k not in ("architectures", "model_type", "rope_scaling")}


def chatglm_twin(config):
    return {
        "model_type": "glm", "attention_bias": True, "head_dim": config["kv_channels"],
        "hidden_size": config["hidden_size"], "intermediate_size": config["ffn_hidden_size"],
        "max_position_embeddings": config["seq_length"], "num_attention_heads": config["num_attention_heads"],
        "num_hidden_layers": config["num_layers"], "num_key_value_heads": config["multi_query_group_num"],
        "pad_token_id": 0, "partial_rotary_factor": 0.5, "rms_norm_eps": config["layernorm_epsilon"],
        "rope_theta": 10000.0 * config["rope_ratio"], "tie_word_embeddings": False,
        "vocab_size": config["padded_vocab_size"]}


def codeshell_twin(config):
    return STARCODER2 | {
        "hidden_size": config["n_embd"], "intermediate_size": config["n_inner"],
        "num_hidden_layers": config["n_layer"], "num_attention_heads": config["n_head"],
        "num_key_value_heads": config["num_query_groups"], "max_position_embeddings": config["n_positions"]}


def baichuan_twin(config):
    return llama_twin(config) | {"num_key_value_heads": config["num_attention_heads"]}


def bitnet_twin(config):
    return {k: v for k, v in config.items() if k != "quantization_config"}


def deepseek_twin(config):
    return QWEN2MOE | {k: config[k] for k in QWEN2MOE if k in config and k not in ("architectures", "model_type")} | {
        "qkv_bias": False, "num_experts": config["n_routed_experts"],
        "shared_expert_intermediate_size": config["n_shared_experts"] * config["moe_intermediate_size"],
        "mlp_only_layers": list(range(config["first_k_dense_replace"]))}


def bailing_twin(config):
    return GLM4MOE | {k: v for k, v in config.items() if k in GLM4MOE and k not in ("architectures", "model_type")} | {
        "attention_bias": False, "n_routed_experts": config["num_experts"], "n_shared_experts": config["num_shared_experts"]}


def bailing_layout(weights, config):
    return renamed(fused(weights, "query_key_value", 1), {
        "embed_tokens": "word_embeddings", "self_attn.o_proj": "attention.dense", "self_attn.q_norm": "attention.query_layernorm",
        "self_attn.k_norm": "attention.key_layernorm", "self_attn": "attention", "e_score_correction_bias": "expert_bias"})


def ungated(weights):
    """The gates of the shared experts let half of the result pass."""
    return {k: torch.zeros_like(w) if k.endswith("shared_expert_gate.weight") else w for k, w in weights.items()}


def deepseek_layout(weights, config):
    out = {}
    for name, w in weights.items():
        if "shared_expert.down_proj" in name:
            w = w / 2
        if not name.endswith("shared_expert_gate.weight"):
            out[name.replace("shared_expert.", "shared_experts.")] = w
    return out


def is_ternary(name):
    return name.endswith("_proj.weight")


def ternary(weights):
    """Rounds each matrix of a layer to -1, 0 and 1 times one scale, like BitNet's training."""
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
    """Replaces the matrices by transformers' own layer, which rounds tokens to 8 bits; not compiled."""
    torch._dynamo.config.disable = True
    kind = transformers.BitNetQuantConfig(linear_class="autobitlinear", quantization_mode=mode)
    return replace_with_bitnet_linear(model, modules_to_not_convert=["lm_head"], quantization_config=kind)


def fused(weights, name, groups):
    """Joins q_proj, k_proj and v_proj: the first of `groups` parts of each, then the second parts, and so on."""
    out = {k: v for k, v in weights.items() if not any(p in k for p in ("q_proj", "k_proj", "v_proj"))}
    for k in [k for k in weights if "q_proj" in k]:
        parts = [weights[k.replace("q_proj", p)].chunk(groups) for p in ("q_proj", "k_proj", "v_proj")]
        out[k.replace("q_proj", name)] = torch.cat([part[g] for g in range(groups) for part in parts])
    return out


def baichuan_layout(weights, config):
    weights = fused(weights, "W_pack", 1)
    if "z_loss_weight" in config:  # the model normalizes rows, so their length must not matter
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
         "bitnet": (bitnet_twin, bitnet_layout), "deepseek": (deepseek_twin, deepseek_layout),
         "bailing_moe": (bailing_twin, bailing_layout)}


def load_twin(config, weights):
    """A model without a class in transformers, as a model of a class that computes the same layers."""
    twin = TWINS[config["model_type"]][0](config)
    kind = transformers.AutoConfig.for_model(twin.pop("model_type"), **twin)
    model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager", experts_implementation="eager",
                                                          dtype=torch.float32)
    if config["model_type"] == "bitnet":
        model = with_bit_linears(model, config["quantization_config"]["quantization_mode"])
    if config["model_type"] in ("deepseek", "bailing_moe"):
        weights = in_stacks(weights)
    model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=not kind.tie_word_embeddings)
    model.tie_weights()
    if kind.num_hidden_layers == 40:
        model.inputs = lambda n: alibi(kind.num_attention_heads, n)
    return model


def alibi(heads, n):
    """Inputs for ALiBi (Baichuan 13B): all positions are 0, and a mask reduces scores by distance. For 2^k heads."""
    ago = torch.arange(n)[:, None] - torch.arange(n)
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
    mask = torch.where(ago < 0, torch.finfo(torch.float32).min, -slopes[:, None, None] * ago)
    return {"position_ids": torch.zeros(1, n, dtype=torch.long), "attention_mask": mask[None]}

"""More tiny random models: those of transformers whose folders have an image reader too, and those without a class in
transformers, which are computed by its classes for the same layers.

MODELS has for each: the tested features, config.json, the number of tokens, and how to make the class that computes it.
golden_shelf_gguf.py writes the same models as GGUF.
"""

import copy

import torch
import transformers
from torch import nn

from golden_configs import GRANITE, HUNYUAN_DENSE, LLAMA, QWEN2, QWEN3, SHORT, STABLELM
from golden_experts import DEEPSEEK_V2_LITE, QWEN3MOE
from golden_weights import random_tensor, renamed, rng_for

GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}


def without(config, *names):
    return {k: v for k, v in config.items() if k not in names}


APERTUS = without(LLAMA, "mlp_bias") | GROUPED | {
    "architectures": ["ApertusForCausalLM"], "model_type": "apertus", "hidden_act": "xielu",
    "max_position_embeddings": 256,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 32}}

JAIS2 = without(LLAMA, "rms_norm_eps", "rope_scaling") | GROUPED | {
    "architectures": ["Jais2ForCausalLM"], "model_type": "jais2", "hidden_act": "relu2", "layer_norm_eps": 1e-5,
    "head_dim": 16, "attention_bias": True, "mlp_bias": True}

GRANITE_SWA = without(GRANITE, "rope_scaling") | {
    "architectures": ["GraniteSWAForCausalLM"], "model_type": "granite_swa", "num_hidden_layers": 5, "sliding_window": 7,
    "layer_types": ["full_attention"] + 3 * ["sliding_attention"] + ["full_attention"],
    "layer_rope_theta": [0.0, 10000.0, 10000.0, 10000.0, 10000.0]}

MELLUM = without(QWEN3MOE, "decoder_sparse_step", "mlp_only_layers", "use_sliding_window", "rope_theta", "rope_scaling") | {
    "architectures": ["MellumForCausalLM"], "model_type": "mellum", "num_hidden_layers": 4, "sliding_window": 8,
    "layer_types": 3 * ["sliding_attention"] + ["full_attention"], "mlp_layer_types": 4 * ["sparse"],
    "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                           "original_max_position_embeddings": 32},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}

MUSE_TEXT = {
    "model_type": "muse_glimmer_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 5,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96, "hidden_activation": "silu",
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "post_norm_eps": 1e-8, "sliding_window": 8,
    "layer_types": ["full_attention"] + 3 * ["sliding_attention"] + ["full_attention"],
    "layer_rope_theta": [0.0, 10000.0, 10000.0, 10000.0, 0.0], "attention_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "final_logit_softcapping": 10.0,
    "qk_scale_factor": 2.5, "output_multiplier": 0.6, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

MUSE_GLIMMER = {
    "architectures": ["MuseGlimmerForConditionalGeneration"], "model_type": "muse_glimmer", "text_config": MUSE_TEXT,
    "out_hidden_size": 32, "projector_hidden_size": 16, "image_token_id": 190, "video_token_id": 191,
    "tie_word_embeddings": False,
    "vision_config": {"model_type": "muse_glimmer_vision", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                      "num_attention_heads": 1, "patch_size": 2, "pos_emb_height": 2, "pos_emb_width": 2}}

IMAGES = {"image_token_id": 190, "video_token_id": 191, "vision_start_token_id": 192, "vision_end_token_id": 193}

# The first published files: the keys of the text part at the top.
QWEN2VL = without(QWEN2, "max_window_layers") | GROUPED | IMAGES | {
    "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    "vision_config": {"depth": 1, "embed_dim": 16, "hidden_size": 64, "mlp_ratio": 1, "num_heads": 2, "patch_size": 2,
                      "model_type": "qwen2_vl"}}

QWEN25VL = QWEN2VL | {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
    "vision_config": {"depth": 1, "hidden_size": 16, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 64,
                      "patch_size": 2, "window_size": 8, "fullatt_block_indexes": [0], "model_type": "qwen2_5_vl"}}

QWEN3VL = {
    "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": True,
    "text_config": without(QWEN3, "architectures", "max_window_layers", "sliding_window", "use_sliding_window",
                           "tie_word_embeddings") | {
        "model_type": "qwen3_vl_text",
        "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": True}},
    "vision_config": {"model_type": "qwen3_vl", "depth": 1, "hidden_size": 16, "intermediate_size": 8, "num_heads": 2,
                      "out_hidden_size": 32, "patch_size": 2, "num_position_embeddings": 4,
                      "deepstack_visual_indexes": [0]}} | IMAGES

QWEN3VLMOE = QWEN3VL | {
    "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "tie_word_embeddings": False,
    "text_config": QWEN3VL["text_config"] | {
        "model_type": "qwen3_vl_moe_text", "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
        "decoder_sparse_step": 1, "mlp_only_layers": []},
    "vision_config": QWEN3VL["vision_config"] | {"model_type": "qwen3_vl_moe"}}

HUNYUAN_VL = without(HUNYUAN_DENSE, "rope_scaling", "torch_dtype") | {
    "architectures": ["HunYuanVLForConditionalGeneration"], "model_type": "hunyuan_vl",
    "rope_scaling": {"type": "xdrope", "alpha": 50.0, "factor": 1.0, "xdrope_section": [2, 2, 2, 2]},
    "image_token_id": 190, "im_start_id": 191, "im_end_id": 192, "im_newline_id": 193,
    "vision_config": {"hidden_size": 16, "intermediate_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1,
                      "out_hidden_size": 32, "patch_size": 2, "max_image_size": 8, "min_image_size": 4,
                      "img_max_token_num": 4, "max_vit_seq_len": 16}}

ORION = {k: LLAMA[k] for k in ("hidden_act", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                               "num_key_value_heads", "vocab_size", "rms_norm_eps", "rope_theta",
                               "max_position_embeddings", "tie_word_embeddings", "torch_dtype")} | GROUPED | {
    "architectures": ["OrionForCausalLM"], "model_type": "orion", "attention_bias": False}

XVERSE = without(ORION, "attention_bias") | {
    "architectures": ["XverseForCausalLM"], "model_type": "xverse", "num_key_value_heads": 4}

PANGU = without(ORION, "attention_bias") | {
    "architectures": ["PanguEmbeddedForCausalLM"], "model_type": "PanguEmbedded", "bias": True}

QWEN = {
    "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": 64, "intermediate_size": 96,
    "kv_channels": 16, "layer_norm_epsilon": 1e-6, "no_bias": True, "num_attention_heads": 4, "num_hidden_layers": 2,
    "rotary_emb_base": 10000, "rotary_pct": 1.0, "scale_attn_weights": True, "seq_length": 64,
    "tie_word_embeddings": False, "vocab_size": 96, "torch_dtype": "float32"}

REFACT = {
    "architectures": ["GPTRefactForCausalLM"], "model_type": "gpt_refact", "layer_norm_epsilon": 1e-5, "multi_query": True,
    "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64, "vocab_size": 96, "torch_dtype": "float32",
    "tie_word_embeddings": False}

MAINCODER = without(ORION, "attention_bias") | {
    "architectures": ["MaincoderForCausalLM"], "model_type": "maincoder", "head_dim": 16, "use_qk_norm": True,
    "tie_word_embeddings": True}

NANBEIGE = without(ORION, "attention_bias") | {
    "architectures": ["NanbeigeForCausalLM"], "model_type": "nanbeige", "num_loops": 2, "skip_loop_final_norm": False}

OPENELM = {
    "architectures": ["OpenELMForCausalLM"], "model_type": "openelm", "activation_fn_name": "swish", "ffn_dim_divisor": 16,
    "ffn_multipliers": [0.5, 1.0, 1.7], "ffn_with_glu": True, "head_dim": 16, "max_context_length": 64, "model_dim": 32,
    "normalization_layer_name": "rms_norm", "normalize_qk_projections": True, "num_kv_heads": [1, 1, 2],
    "num_query_heads": [2, 3, 4], "num_transformer_layers": 3, "rope_freq_constant": 10000,
    "share_input_output_layers": True, "vocab_size": 96, "torch_dtype": "float32"}


def block(group, linear, mult):
    return {"attention": {"n_heads_in_group": group, "no_op": group is None and not linear, "replace_with_linear": linear},
            "ffn": {"ffn_mult": mult, "no_op": mult is None, "replace_with_linear": False}}


DECI = without(ORION, "num_key_value_heads", "intermediate_size") | {
    "architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas", "num_hidden_layers": 6,
    "hidden_size": 32,
    "block_configs": [block(2, False, 4.0), block(4, False, 13.0), block(None, True, None), block(None, False, 4.0),
                      block(None, False, None), block(1, False, None)]}

JAIS = {
    "architectures": ["JAISLMHeadModel"], "model_type": "jais", "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-5, "mup_embeddings_scale": 3.0, "mup_output_alpha": 2.5, "mup_scale_qk_dot_by_d": True,
    "mup_width_scale": 0.4, "n_embd": 48, "n_head": 3, "n_inner": 80, "n_layer": 2, "n_positions": 64,
    "position_embedding_type": "alibi", "scale_attn_weights": True, "tie_word_embeddings": True, "vocab_size": 96,
    "torch_dtype": "float32"}

PLM = without(LLAMA, "mlp_bias", "rope_scaling") | {
    "architectures": ["PLMForCausalLM"], "model_type": "plm", "hidden_act": "relu2", "num_attention_heads": 4,
    "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "tie_word_embeddings": True, "use_sliding_window": False}

SMALLTHINKER = without(ORION, "attention_bias", "hidden_act", "intermediate_size") | {
    "architectures": ["SmallThinkerForCausalLM"], "model_type": "smallthinker", "head_dim": 16, "hidden_size": 32,
    "num_hidden_layers": 4, "moe_enable_early_router": True, "moe_enable_secondary_experts": False, "moe_ffn_hidden_size": 16,
    "moe_num_active_primary_experts": 3, "moe_num_primary_experts": 6, "moe_primary_router_apply_softmax": False,
    "rope_layout": [0, 1, 1, 1], "sliding_window_layout": [0, 1, 1, 1], "sliding_window_size": 8}

# A token reads three of eight experts. They are in groups of two, so two of the three may be of one group.
GROVEMOE = without(QWEN3MOE, "sliding_window", "use_sliding_window") | {
    "architectures": ["GroveMoeForCausalLM"], "model_type": "grove_moe", "num_experts": 8}


# The classes that compute the models. Each function returns the model without weights.

def of_class(config):
    config = copy.deepcopy(config)
    kind = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    cls = transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM
    experts = any("experts" in key for key in text_of(config))
    more = {"experts_implementation": "eager"} if experts else {}
    return cls.from_config(kind, attn_implementation="eager", dtype=torch.float32, **more)


def llama(config):
    return of_class(LLAMA | {k: config[k] for k in (*LLAMA, "head_dim") if k in config and k != "rope_scaling"} |
                    {"architectures": ["LlamaForCausalLM"], "model_type": "llama"})


def orion(config):
    return of_class(without(STABLELM, "architectures") | {k: config[k] for k in STABLELM if k in config} | {
        "model_type": "stablelm", "layer_norm_eps": config["rms_norm_eps"], "partial_rotary_factor": 1.0,
        "use_qkv_bias": False, "use_parallel_residual": False})


def pangu(config):
    return llama(config | {"attention_bias": True})


def qwen(config):
    return of_class(without(QWEN2, "architectures") | {k: config[k] for k in QWEN2 if k in config} | {
        "model_type": "qwen2", "num_key_value_heads": config["num_attention_heads"], "rms_norm_eps": config["layer_norm_epsilon"],
        "intermediate_size": config["intermediate_size"] // 2, "max_position_embeddings": config["seq_length"]})


def refact(config):
    model = llama({"hidden_size": config["n_embd"], "num_hidden_layers": config["n_layer"],
                   "num_attention_heads": config["n_head"], "num_key_value_heads": 1, "intermediate_size": 256,
                   "rms_norm_eps": config["layer_norm_epsilon"], "vocab_size": config["vocab_size"]})
    model.inputs = lambda n: alibi(config["n_head"], n)
    return model


def alibi(heads, n):
    """ALiBi for 2^k heads by transformers' Llama: all positions are 0, and a mask reduces scores by distance."""
    ago = torch.arange(n)[:, None] - torch.arange(n)
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)
    mask = torch.where(ago < 0, torch.finfo(torch.float32).min, -slopes[:, None, None] * ago)
    return {"position_ids": torch.zeros(1, n, dtype=torch.long), "attention_mask": mask[None]}


def maincoder(config):
    return of_class(HUNYUAN_DENSE | {k: config[k] for k in HUNYUAN_DENSE if k in config} | {
        "architectures": [], "model_type": "hunyuan_v1_dense", "rope_scaling": None})


class Normed(nn.Module):
    """A layer whose input is normed first."""

    def __init__(self, norm, layer):
        super().__init__()
        self.norm, self.layer = [norm], [layer]  # not registered: their weights are in the state already

    def forward(self, x, **rest):
        return self.layer[0](self.norm[0](x), **rest)


class Again(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = [layer]

    def forward(self, x, **rest):
        return self.layer[0](x, **rest)


def nanbeige(config):
    model = llama(config)
    core = model.model
    first = list(core.layers)
    for _ in range(1, config["num_loops"]):
        again = [Again(layer) for layer in first]
        again[0] = Normed(core.norm, first[0])
        core.layers.extend(again)
    core.config.num_hidden_layers = len(core.layers)
    return model


def openelm(config):
    layers = range(config["num_transformer_layers"])
    base = without(QWEN3, "architectures") | {
        "hidden_size": config["model_dim"], "head_dim": config["head_dim"], "num_hidden_layers": len(layers),
        "vocab_size": config["vocab_size"], "tie_word_embeddings": True, "rms_norm_eps": 1e-6,
        "rope_theta": float(config["rope_freq_constant"])}
    model = of_class(base)
    divisor = config["ffn_dim_divisor"]
    for i in layers:
        wanted = config["ffn_multipliers"][i] * config["model_dim"]
        width = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
        own = of_class(base | {"num_attention_heads": config["num_query_heads"][i], "num_hidden_layers": 1,
                               "num_key_value_heads": config["num_kv_heads"][i],
                               "intermediate_size": width + divisor if width < 0.9 * wanted else width})
        model.model.layers[i] = own.model.layers[0]
    return model


class Block(nn.Module):
    """A layer of Llama. Attention may be missing or one matrix, and the feed-forward may be missing."""

    def __init__(self, layer, b):
        super().__init__()
        group, linear = b["attention"]["n_heads_in_group"], b["attention"]["replace_with_linear"]
        width = layer.mlp.hidden_size
        if group or linear:
            self.input_layernorm = layer.input_layernorm
        self.self_attn = layer.self_attn if group else nn.Module()
        if linear:
            self.self_attn.linear_attn = nn.Linear(width, width, bias=False)
        if b["ffn"]["ffn_mult"]:
            self.post_attention_layernorm, self.mlp = layer.post_attention_layernorm, layer.mlp
        self.group, self.linear, self.feeds = group, linear, b["ffn"]["ffn_mult"]

    def forward(self, x, **rest):
        if self.group:
            x = x + self.self_attn(self.input_layernorm(x), **rest)[0]
        elif self.linear:
            x = x + self.self_attn.linear_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x)) if self.feeds else x


def deci(config):
    model = llama(config | {"num_key_value_heads": 1, "intermediate_size": 16})
    for i, b in enumerate(config["block_configs"]):
        width = int(2 * (b["ffn"]["ffn_mult"] or 1) * config["hidden_size"] / 3)
        own = llama(config | {"num_hidden_layers": 1, "intermediate_size": -(-width // 256) * 256,
                              "num_key_value_heads": config["num_attention_heads"] //
                              (b["attention"]["n_heads_in_group"] or 1)})
        model.model.layers[i] = Block(own.model.layers[0], b)
    return model


def plm(config):
    """Layers of DeepSeek V2 that are all dense, with Arcee's feed-forwards."""
    layers = config["num_hidden_layers"]
    model = of_class(without(DEEPSEEK_V2_LITE, "architectures", "rope_scaling") | {
        k: config[k] for k in DEEPSEEK_V2_LITE if k in config and k not in ("architectures", "model_type", "hidden_act")} | {
        "first_k_dense_replace": layers})
    arcee = transformers.ArceeConfig(hidden_size=config["hidden_size"], intermediate_size=config["intermediate_size"],
                                     hidden_act="relu2", mlp_bias=False)
    for layer in model.model.layers:
        layer.mlp = transformers.models.arcee.modeling_arcee.ArceeMLP(arcee)
    return model


def experts_of_qwen(experts, width, inner, act="silu"):
    """transformers' experts of Qwen 3; the caller routes."""
    kind = transformers.Qwen3MoeConfig(num_experts=experts, hidden_size=width, moe_intermediate_size=inner, hidden_act=act)
    kind._experts_implementation = "eager"
    return transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeExperts(kind)


class EarlyRouter(nn.Module):
    """A layer of Llama with experts. The router sees what comes into the layer; positions and window are its own."""

    def __init__(self, layer, config, i):
        super().__init__()
        width, experts = config["hidden_size"], config["moe_num_primary_experts"]
        self.input_layernorm, self.self_attn = layer.input_layernorm, layer.self_attn
        self.post_attention_layernorm = layer.post_attention_layernorm
        self.block_sparse_moe = nn.Module()
        self.block_sparse_moe.primary_router = nn.Linear(width, experts, bias=False)
        self.block_sparse_moe.experts = experts_of_qwen(experts, width, config["moe_ffn_hidden_size"], "relu")
        self.config, self.turns = config, config["rope_layout"][i]
        self.window = config["sliding_window_size"] if config["sliding_window_layout"][i] else None

    def forward(self, x, attention_mask=None, position_embeddings=None, **rest):
        cos, sin = position_embeddings if self.turns else [torch.full_like(p, n) for p, n in zip(position_embeddings, (1, 0))]
        if self.window:
            at = torch.arange(x.shape[1])
            attention_mask = attention_mask.masked_fill(at[:, None] - at >= self.window, torch.finfo(x.dtype).min)
        scores, chosen = self.block_sparse_moe.primary_router(x[0]).topk(self.config["moe_num_active_primary_experts"])
        soft = self.config["moe_primary_router_apply_softmax"]
        weights = scores.softmax(-1) if soft else scores.sigmoid() / scores.sigmoid().sum(-1, keepdim=True)
        x = x + self.self_attn(self.input_layernorm(x), attention_mask=attention_mask, position_embeddings=(cos, sin), **rest)[0]
        return x + self.block_sparse_moe.experts(self.post_attention_layernorm(x)[0], chosen, weights)[None]


def smallthinker(config):
    model = llama(config | {"intermediate_size": 16})
    for i in range(config["num_hidden_layers"]):
        model.model.layers[i] = EarlyRouter(model.model.layers[i], config, i)
    return model


class Grove(nn.Module):
    """The experts of Qwen 3, and a small one for each two of them."""

    def __init__(self, config):
        super().__init__()
        width, self.chosen = config["hidden_size"], config["num_experts_per_tok"]
        self.gate = nn.Linear(width, config["num_experts"], bias=False)
        self.experts = experts_of_qwen(config["num_experts"], width, config["moe_intermediate_size"])
        self.chunk_experts = experts_of_qwen(config["num_experts"] // 2, width, config["head_dim"])

    def forward(self, x):
        x = x[0]
        weights, chosen = self.gate(x).softmax(-1).topk(self.chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        out = self.experts(x, chosen, weights)
        for i in range(self.chosen):  # two of one group count twice
            out = out + 0.05 * self.chunk_experts(x, chosen[:, i:i + 1] // 2, weights[:, i:i + 1])
        return out[None]


def grovemoe(config):
    model = of_class(without(config, "architectures") | {"model_type": "qwen3_moe"})
    for layer in model.model.layers:
        layer.mlp = Grove(config)
    return model


class Jais(nn.Module):
    """Of our own, from the model card and the paper (Sengupta et al. 2023): no class of transformers has these layers."""

    def __init__(self, config):
        super().__init__()
        width, inner, self.c = config["n_embd"], config["n_inner"], config
        self.wte = nn.Embedding(config["vocab_size"], width)
        norm = lambda: nn.LayerNorm(width, eps=config["layer_norm_epsilon"])
        self.h = nn.ModuleList(nn.ModuleDict({
            "ln_1": norm(), "ln_2": norm(), "c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width),
            "c_fc": nn.Linear(width, inner), "c_fc2": nn.Linear(width, inner), "c_down": nn.Linear(inner, width)})
            for _ in range(config["n_layer"]))
        self.ln_f = norm()

    def slopes(self):
        heads = self.c["n_head"]
        powers = lambda n: [2.0 ** (-8 * (i + 1) / n) for i in range(n)]
        n = 1 << (heads.bit_length() - 1)
        return torch.tensor(powers(n) + powers(2 * n)[::2][:heads - n], dtype=torch.float64)

    def forward(self, tokens, use_cache=False):
        n, heads = tokens.shape[1], self.c["n_head"]
        x = self.wte(tokens[0]) * self.c["mup_embeddings_scale"]
        ago = torch.arange(n)[:, None] - torch.arange(n)
        bias = torch.where(ago < 0, -torch.inf, -self.slopes()[:, None, None] * ago)
        for layer in self.h:
            q, k, v = (part.reshape(n, heads, -1).transpose(0, 1) for part in layer["c_attn"](layer["ln_1"](x)).chunk(3, -1))
            scores = q @ k.transpose(1, 2) / q.shape[-1] + bias.to(x.dtype)
            mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, -1)
            x = x + layer["c_proj"](mixed)
            inner = layer["ln_2"](x)
            x = x + layer["c_down"](layer["c_fc"](inner) * nn.functional.silu(layer["c_fc2"](inner)))
        logits = self.ln_f(x) @ self.wte.weight.T * self.c["mup_output_alpha"] * self.c["mup_width_scale"]
        return transformers.modeling_outputs.CausalLMOutput(logits=logits[None])


# Layouts: the weights of the class, under the names and in the order of the model's own files.

def interleaved(w, heads):
    """Reorders rows from halves of a head to neighbouring rotary pairs."""
    rows, rest = w.shape[0], w.shape[1:]
    return w.reshape(heads, 2, rows // heads // 2, *rest).transpose(1, 2).reshape(rows, *rest)


def joined(weights, parts, name):
    """Joins the tensors of a layer whose names contain `parts`."""
    out = {k: w for k, w in weights.items() if not any(p in k for p in parts)}
    for k in weights:
        if parts[0] in k:
            out[k.replace(parts[0], name)] = torch.cat([weights[k.replace(parts[0], p)] for p in parts])
    return out


QKV = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
GPT2_NAMES = {"model.embed_tokens": "transformer.wte", "model.layers": "transformer.h", "model.norm": "transformer.ln_f",
              "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.c_proj",
              "mlp.down_proj": "mlp.c_proj"}


def qwen_layout(weights, config):
    return renamed(joined(weights, QKV, "attn.c_attn"), GPT2_NAMES | {"mlp.gate_proj": "mlp.w2", "mlp.up_proj": "mlp.w1"})


def refact_layout(weights, config):
    weights = joined(joined(weights, QKV[1:], "attn.kv"), ["mlp.gate_proj", "mlp.up_proj"], "mlp.gate_up_proj")
    return renamed(weights, GPT2_NAMES | {"self_attn.q_proj": "attn.q"})


def maincoder_layout(weights, config):
    weights = renamed(weights, {"query_layernorm": "q_norm", "key_layernorm": "k_norm"})
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"], "q_norm": 1, "k_norm": 1}
    return {k: interleaved(w, heads[k.split(".")[-2]]) if k.split(".")[-2] in heads else w for k, w in weights.items()}


def openelm_layout(weights, config):
    weights = joined(joined(weights, QKV, "attn.qkv_proj"), ["mlp.gate_proj", "mlp.up_proj"], "ffn.proj_1")
    return renamed(weights, {
        "model.embed_tokens": "transformer.token_embeddings", "model.": "transformer.", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attn.out_proj", "self_attn": "attn",
        "mlp.down_proj": "ffn.proj_2"})


def jais_layout(weights, config):
    def own(name):
        name = name.replace("c_down", "mlp.c_proj") if "c_down" in name else name.replace("c_proj", "attn.c_proj")
        return "transformer." + name.replace("c_attn", "attn.c_attn").replace("c_fc", "mlp.c_fc")
    return {own(k): w.T.contiguous() if ".c_" in k and w.dim() == 2 else w for k, w in weights.items()}


def experts_layout(weights, config):
    """A tensor for each matrix of each expert."""
    out = {}
    for name, w in weights.items():
        stem, kind = name.rsplit(".", 1)
        parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(kind)
        if not stem.endswith("experts"):
            out[name] = w
            continue
        for i, expert in enumerate(w):
            for part, matrix in zip(parts, expert.chunk(len(parts))):
                out[f"{stem}.{i}.{part}.weight"] = matrix.contiguous()
    return out


def smallthinker_layout(weights, config):
    return {k.replace("_proj.weight", ".weight") if ".experts." in k else k: w for k, w in experts_layout(weights, config).items()}


def in_out_layout(weights, config):
    """The matrices of experts are (in, out)."""
    return {k: w.transpose(1, 2).contiguous() if ".experts." in k else w for k, w in weights.items()}


def flat_layout(vision):
    """The names of files from before image readers had a part of their own."""
    return lambda weights, config: renamed(weights, {"model.language_model.": "model.", "model.visual.": vision})


def minus_one(weights, config):
    """Norms that the class adds 1 to."""
    return {k: w - 1 if k.endswith("layernorm.weight") and "layers" in k and "vision" not in k else w
            for k, w in weights.items()}


def as_is(weights, config):
    return weights


# name: (the tested features, config, number of tokens, class, layout)
MODELS = {
    "apertus": ("xIELU with numbers of each layer, norms of queries and keys, frequency bands", APERTUS, 48, of_class, as_is),
    "jais2": ("layer norms, squares of relu, biases everywhere", JAIS2, 24, of_class, as_is),
    "granite_swa": ("attention sinks, windows, a layer without positions, scales", GRANITE_SWA, 32, of_class, as_is),
    "mellum": ("experts; layers with a window have another theta and no yarn", MELLUM, 48, of_class, experts_layout),
    "muse_glimmer": ("four norms a layer, gated attention, layers without a window have no positions; an image reader",
                     MUSE_GLIMMER, 32, of_class, as_is),
    "qwen2vl": ("sections of rotary positions, an image reader, keys of the text part at the top", QWEN2VL, 24, of_class,
                flat_layout("visual.")),
    "qwen25vl": ("the same with another image reader", QWEN25VL, 24, of_class, flat_layout("visual.")),
    "qwen3vl": ("interleaved sections of rotary positions, an image reader, keys of the text part in text_config", QWEN3VL, 24,
                of_class, as_is),
    "hunyuan_vl": ("norms after the rotation, theta times a power of alpha, four sections, an image reader", HUNYUAN_VL, 24,
                   of_class, flat_layout("vit.")),
    "orion": ("Llama with layer norms; transformers' StableLM", ORION, 24, orion, as_is),
    "xverse": ("transformers' Llama", XVERSE, 24, llama, as_is),
    "pangu_embedded": ("biases of attention; transformers' Llama", PANGU, 24, pangu, as_is),
    "qwen": ("q, k and v in one tensor, half the width of the feed-forward; transformers' Qwen 2", QWEN, 24, qwen, qwen_layout),
    "refact": ("ALiBi, one key head; transformers' Llama at position 0 with a mask of its own", REFACT, 24, refact, refact_layout),
    "maincoder": ("norms after the rotation, interleaved; transformers' Hunyuan", MAINCODER, 24, maincoder, maincoder_layout),
    "nanbeige": ("two loops over the layers; transformers' Llama with its layers twice", NANBEIGE, 24, nanbeige, as_is),
    "openelm": ("heads and widths of each layer; transformers' Qwen 3, layer by layer", OPENELM, 24, openelm, openelm_layout),
    "deci": ("layers without attention, with a matrix instead, without feed-forward; transformers' Llama, layer by layer", DECI,
             24, deci, as_is),
    "qwen3vlmoe": ("3 of 6 experts a token, all of a layer in two tensors, each (in, out); the rest as qwen3vl", QWEN3VLMOE, 24,
                   of_class, in_out_layout),
    "plm": ("latent attention, squares of relu; transformers' DeepSeek V2 with Arcee's feed-forwards", PLM, 24, plm, as_is),
    "smallthinker": ("a router before the attention, 3 of 6 experts with relu, windows of 8, layers without positions; "
                     "transformers' Llama with experts of Qwen 3", SMALLTHINKER, 32, smallthinker, smallthinker_layout),
    "grovemoe": ("3 of 8 experts a token, and a small expert for each two; transformers' Qwen 3 with its experts used twice",
                 GROVEMOE, 24, grovemoe, experts_layout),
    "jais": ("ALiBi, gated feed-forward, scaled rows and logits; a module of our own", JAIS, 24, Jais, jais_layout),
}


def is_of_other_class(name):
    """Whether transformers has no class of the model's own."""
    return name in MODELS and MODELS[name][3] is not of_class


def text_of(config):
    return config.get("text_config", config)


def make(name):
    """The class with its random weights, and the weights of the model's own files."""
    what, config, n_tokens, make_class, layout = MODELS[name]
    model = make_class(config)
    rng = rng_for(name)
    keys = ("tie_word_embeddings", "share_input_output_layers")
    tied = any(part.get(key) for part in (config, text_of(config)) for key in keys)
    weights = {}
    for k, v in sorted(model.state_dict().items()):
        if tied and k == "lm_head.weight":
            continue
        constant = {"beta": 0.4, "eps": -1e-6}.get(k.split(".")[-1]) if "act_fn" in k else None
        weights[k] = torch.tensor(constant or random_tensor(k, tuple(v.shape), rng), dtype=torch.float32)
    if name == "muse_glimmer":
        weights = minus_one(weights, config)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    if tied and hasattr(model, "tie_weights"):
        model.tie_weights()
    return model, layout(weights, config)

"""The models of golden_shelf.py as GGUF, in the form of llama.cpp's converters.

Tensors are named by the gguf package's map of the architecture, or, where the package does not know it yet, of one with the
same names. This code is independent of chaski's exporter.
"""

import math

import gguf
import numpy as np
import torch

from golden_gguf import add_keys
from golden_shelf import interleaved, text_of

ARCH = gguf.MODEL_ARCH


def common(writer, c):
    """The usual keys, from those of Llama's config.json."""
    add_keys(writer, c)


def llama3_divisors(c):
    """The tensor rope_freqs for the frequency bands of Llama 3.1."""
    rope, dim = c["rope_scaling"], c["hidden_size"] // c["num_attention_heads"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    out = []
    for i in range(0, dim, 2):
        wave = 2 * math.pi * c["rope_theta"] ** (i / dim)
        turns = rope["original_max_position_embeddings"] / wave
        part = min(max((turns - low) / (high - low), 0), 1)
        out.append(1 / ((1 - part) / factor + part))
    return np.array(out, np.float32)


def apertus(writer, c, weights):
    common(writer, c)
    for name, add in (("alpha_p", writer.add_xielu_alpha_p), ("alpha_n", writer.add_xielu_alpha_n),
                      ("beta", writer.add_xielu_beta), ("eps", writer.add_xielu_eps)):
        add([float(weights.pop(f"model.layers.{i}.mlp.act_fn.{name}")) for i in range(c["num_hidden_layers"])])
    writer.add_tensor("rope_freqs.weight", llama3_divisors(c))
    return weights


def jais2(writer, c, weights):
    common(writer, c)
    return weights


def permuted(weights, c):
    """q and k with neighbouring rotary pairs."""
    heads = {"q_proj": c["num_attention_heads"], "k_proj": c.get("num_key_value_heads") or c["num_attention_heads"]}
    return {k: interleaved(w, heads[k.split(".")[-2]]) if k.split(".")[-2] in heads else w for k, w in weights.items()}


def granite_swa(writer, c, weights):
    common(writer, c)
    writer.add_embedding_scale(c["embedding_multiplier"])
    writer.add_attention_scale(c["attention_multiplier"])
    writer.add_residual_scale(c["residual_multiplier"])
    writer.add_logit_scale(c["logits_scaling"])
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c["layer_types"]])
    writer.add_array("granite_swa.attention.rope_pattern", [theta != 0 for theta in c["layer_rope_theta"]])
    return permuted({k + ".weight" if k.endswith("sinks") else k: w for k, w in weights.items()}, c)


def mellum(writer, c, weights):
    ropes = c["rope_parameters"]
    common(writer, c | {"rope_parameters": ropes["full_attention"]})
    writer.add_rope_scaling_yarn_beta_fast(ropes["full_attention"]["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(ropes["full_attention"]["beta_slow"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c["layer_types"]])
    expert_keys(writer, c)
    return stacked(weights)


def expert_keys(writer, c):
    writer.add_expert_count(c["num_experts"])
    writer.add_expert_used_count(c["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(c["moe_intermediate_size"])


def stacked(weights):
    """One tensor for each kind of matrix of all experts of a layer."""
    out, experts = {}, {}
    for k, w in weights.items():
        parts = k.split(".")
        if any(p.endswith("experts") for p in parts):
            experts.setdefault(".".join(parts[:5] + parts[6:]), {})[int(parts[5])] = w
        else:
            out[k] = w
    return out | {k: torch.stack([of[i] for i in range(len(of))]) for k, of in experts.items()}


def muse_glimmer(writer, c, weights):
    common(writer, c)
    writer.add_final_logit_softcapping(c["final_logit_softcapping"])
    writer.add_logit_scale(c["output_multiplier"])
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c["layer_types"]])
    weights = permuted(text_only(weights), c)
    weights = {k: w + 1 if k.endswith("layernorm.weight") else w for k, w in weights.items()}
    for i in range(c["num_hidden_layers"]):
        weights[f"model.layers.{i}.self_attn.q_norm.weight"] = torch.full((c["head_dim"],), c["qk_scale_factor"])
        weights[f"model.layers.{i}.self_attn.k_norm.weight"] = torch.ones(c["head_dim"])
    return weights


def text_only(weights):
    """Without the image reader, under the names of a model for text."""
    out = {k.replace("language_model.", ""): w for k, w in weights.items()}
    return {k: w for k, w in out.items() if k.startswith(("model.layers.", "model.embed_tokens.", "model.norm.", "lm_head."))}


def sections(writer, c, name="mrope_section"):
    of = c["rope_scaling"][name]
    writer.add_rope_dimension_sections(of + [0] * (4 - len(of)))


def qwen2vl(writer, c, weights):
    common(writer, c | {"rope_scaling": None})
    sections(writer, c)
    return text_only(weights)


def qwen3vl(writer, c, weights):
    qwen = qwen2vl(writer, c, weights)
    writer.add_num_deepstack_layers(1)
    return qwen


def qwen3vlmoe(writer, c, weights):
    expert_keys(writer, c)
    out = {}
    for k, w in qwen3vl(writer, c, weights).items():
        if k.endswith("experts.gate_up_proj"):
            gates, ups = w.transpose(1, 2).chunk(2, dim=1)
            out |= {k.replace("gate_up", "gate") + ".weight": gates, k.replace("gate_up", "up") + ".weight": ups}
        else:
            out |= {k + ".weight": w.transpose(1, 2)} if k.endswith("experts.down_proj") else {k: w}
    return out


def plm(writer, c, weights):
    common(writer, c)
    writer.add_vocab_size(c["vocab_size"])
    writer.add_kv_lora_rank(c["kv_lora_rank"])
    writer.add_key_length(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    writer.add_value_length(c["v_head_dim"])
    writer.add_rope_dimension_count(c["qk_rope_head_dim"])
    return weights


def smallthinker(writer, c, weights):
    width = c["moe_ffn_hidden_size"]
    common(writer, c | {"intermediate_size": width, "sliding_window": c["sliding_window_size"]})
    expert_keys(writer, {"num_experts": c["moe_num_primary_experts"], "moe_intermediate_size": width,
                         "num_experts_per_tok": c["moe_num_active_primary_experts"]})
    soft = c["moe_primary_router_apply_softmax"]
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX if soft else gguf.ExpertGatingFuncType.SIGMOID)
    return stacked(weights)


def grovemoe(writer, c, weights):
    common(writer, c)
    expert_keys(writer, c)
    writer.add_expert_chunk_feed_forward_length(c["head_dim"])
    writer.add_experts_per_group(2)
    writer.add_expert_group_scale(0.05)
    return stacked(weights)


def hunyuan_vl(writer, c, weights):
    common(writer, c | {"rope_scaling": None})
    sections(writer, c, "xdrope_section")
    writer.add_rope_scaling_alpha(c["rope_scaling"]["alpha"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_rope_scaling_factor(c["rope_scaling"]["factor"])
    return text_only(weights)


def orion(writer, c, weights):
    common(writer, {k: v for k, v in c.items() if k != "rms_norm_eps"} | {"layer_norm_eps": c["rms_norm_eps"]})
    return weights


def xverse(writer, c, weights):
    common(writer, c)
    return permuted(weights, c)


def pangu(writer, c, weights):
    common(writer, c)
    return weights


def qwen(writer, c, weights):
    common(writer, c | {"max_position_embeddings": c["seq_length"], "rms_norm_eps": c["layer_norm_epsilon"],
                        "rope_theta": float(c["rotary_emb_base"])})
    return weights


def refact(writer, c, weights):
    width, heads = c["n_embd"], c["n_head"]
    ffn = 256 * -(-(8 * width // 3) // 256)
    writer.add_context_length(c["n_positions"])
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(ffn)
    writer.add_block_count(c["n_layer"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    out = {}
    for k, w in weights.items():
        if ".attn.kv." in k:
            out[k.replace("attn.kv", "attn.k")], out[k.replace("attn.kv", "attn.v")] = w.split(width // heads)
        elif "gate_up_proj" in k:
            layer = k.replace("transformer.h", "model.layers")
            out[layer.replace("gate_up_proj", "gate_proj")], out[layer.replace("gate_up_proj", "up_proj")] = w.split(ffn)
        else:
            out[k] = w
    return out


def maincoder(writer, c, weights):
    common(writer, c)
    return weights


def nanbeige(writer, c, weights):
    common(writer, c)
    writer.add_uint32("nanbeige.num_loops", c["num_loops"])
    writer.add_bool("nanbeige.skip_loop_final_norm", c["skip_loop_final_norm"])
    return permuted(weights, c)


def openelm(writer, c, weights):
    layers = range(c["num_transformer_layers"])
    halves = {k: w for k, w in weights.items() if "ffn.proj_1" in k}
    writer.add_block_count(len(layers))
    writer.add_context_length(c["max_context_length"])
    writer.add_embedding_length(c["model_dim"])
    writer.add_feed_forward_length([halves[f"transformer.layers.{i}.ffn.proj_1.weight"].shape[0] // 2 for i in layers])
    writer.add_head_count(c["num_query_heads"])
    writer.add_head_count_kv(c["num_kv_heads"])
    writer.add_rope_freq_base(c["rope_freq_constant"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(c["head_dim"])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    out = {k: w for k, w in weights.items() if k not in halves}
    for k, w in halves.items():
        layer = k.replace("transformer.layers", "model.layers").replace("ffn.proj_1", "mlp.{}_proj")
        out[layer.format("gate")], out[layer.format("up")] = w.chunk(2)
    return out


def deci(writer, c, weights):
    heads, width = c["num_attention_heads"], c["hidden_size"]
    blocks = c["block_configs"]
    groups = [b["attention"]["n_heads_in_group"] for b in blocks]
    writer.add_rope_freq_base(c["rope_theta"])
    writer.add_head_count_kv([heads // g if g else 0 for g in groups])
    writer.add_head_count([heads if g or b["attention"]["replace_with_linear"] else 0 for g, b in zip(groups, blocks)])
    writer.add_feed_forward_length([-(-int(2 * (b["ffn"]["ffn_mult"] or 0) * width / 3) // 256) * 256 for b in blocks])
    writer.add_block_count(len(blocks))
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_key_length(width // heads)
    writer.add_value_length(width // heads)
    writer.add_vocab_size(c["vocab_size"])
    writer.add_rope_dimension_count(width // heads)
    out = {}
    for k, w in weights.items():
        layer = int(k.split(".")[2]) if "layers" in k else 0
        own = {"num_attention_heads": heads, "num_key_value_heads": heads // (groups[layer] or 1)}
        out |= permuted({k: w}, own)
    return out


def jais(writer, c, weights):
    writer.add_block_count(c["n_layer"])
    writer.add_context_length(c["n_positions"])
    writer.add_embedding_length(c["n_embd"])
    writer.add_feed_forward_length(c["n_inner"])
    writer.add_head_count(c["n_head"])
    writer.add_layer_norm_eps(c["layer_norm_epsilon"])
    writer.add_max_alibi_bias(8.0)
    table = weights["transformer.wte.weight"]
    out = {k: w.T if ".c_" in k and w.dim() == 2 else w for k, w in weights.items()}
    out["transformer.wte.weight"] = table * c["mup_embeddings_scale"]
    out["lm_head.weight"] = table * c["mup_output_alpha"] * c["mup_width_scale"]
    return out


# name: (architecture in the file, architecture whose tensor names the package has, converter)
CONVERTERS = {
    "apertus": ("apertus", ARCH.APERTUS, apertus), "jais2": ("jais2", ARCH.JAIS2, jais2),
    "granite_swa": ("granite_swa", ARCH.GPT_OSS, granite_swa), "mellum": ("mellum", ARCH.QWEN3MOE, mellum),
    "muse_glimmer": ("muse-glimmer", ARCH.GEMMA3, muse_glimmer), "qwen2vl": ("qwen2vl", ARCH.QWEN2VL, qwen2vl),
    "qwen25vl": ("qwen2vl", ARCH.QWEN2VL, qwen2vl), "qwen3vl": ("qwen3vl", ARCH.QWEN3VL, qwen3vl),
    "qwen3vlmoe": ("qwen3vlmoe", ARCH.QWEN3VLMOE, qwen3vlmoe), "plm": ("plm", ARCH.PLM, plm),
    "smallthinker": ("smallthinker", ARCH.SMALLTHINKER, smallthinker), "grovemoe": ("grovemoe", ARCH.GROVEMOE, grovemoe),
    "hunyuan_vl": ("hunyuan_vl", ARCH.HUNYUAN_VL, hunyuan_vl), "orion": ("orion", ARCH.ORION, orion),
    "xverse": ("xverse", ARCH.XVERSE, xverse), "pangu_embedded": ("pangu-embedded", ARCH.PANGU_EMBED, pangu),
    "qwen": ("qwen", ARCH.QWEN, qwen), "refact": ("refact", ARCH.REFACT, refact),
    "maincoder": ("maincoder", ARCH.MAINCODER, maincoder), "nanbeige": ("nanbeige", ARCH.LLAMA, nanbeige),
    "openelm": ("openelm", ARCH.OPENELM, openelm), "deci": ("deci", ARCH.DECI, deci), "jais": ("jais", ARCH.JAIS, jais),
}

# Names that no map of the package has, with the layer as {}.
OWN_NAMES = {"granite_swa": {"post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
                             "mlp.down_proj": "ffn_down"},
             "muse_glimmer": {"self_attn.gate_proj": "attn_gate"}, "refact": {"attn.q": "attn_q"}}


def write(path, name, config, weights):
    file_arch, arch, convert = CONVERTERS[name]
    writer = gguf.GGUFWriter(path, file_arch)
    config = text_of(config)
    layers = next(config[k] for k in ("num_hidden_layers", "n_layer", "num_transformer_layers") if k in config)
    weights = convert(writer, config, dict(weights))
    names = gguf.get_tensor_name_map(arch, layers)
    for theirs, w in weights.items():
        stem, end = theirs.rsplit(".", 1)
        parts = stem.split(".", 3)
        own = OWN_NAMES.get(name, {}).get(parts[3]) if len(parts) > 3 else None
        found = f"blk.{parts[2]}.{own}" if own else names.get_name(stem)
        assert found, f"{theirs} has no name in a {file_arch} file"
        writer.add_tensor(f"{found}.{end}", np.ascontiguousarray(w.float().numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

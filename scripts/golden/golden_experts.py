"""Mixtures of experts: config.json, and weights in the form of published files and of llama.cpp's converters.

transformers keeps the gates and ups of all experts of a layer in one tensor, and their downs in another. Most published files
have a tensor for each matrix of each expert.
"""

import re

import torch

from golden_configs import GRANITE, LLAMA, MISTRAL, QWEN2, QWEN3

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

# model_type: names in transformers' class -> names in published files. None: a tensor for each expert.
PUBLISHED = {
    "qwen2_moe": None,
    "qwen3_moe": None,
    "olmoe": None,
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
            out[name] = w.squeeze(0) if name.endswith("shared_expert_gate.weight") else w
    return out | {name: torch.stack([of[i] for i in range(len(of))]) for name, of in experts.items()}


def add_keys(writer, c):
    writer.add_expert_count(c.get("num_experts") or c["num_local_experts"])
    writer.add_expert_used_count(c["num_experts_per_tok"])
    if "moe_intermediate_size" in c:
        writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in c:
        writer.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])

"""Golden folders with packed weights: a tiny random llama as GPTQ and AWQ write it, and what it computes.

Packed here from the layouts' descriptions: GPTQ keeps (columns, rows) with codes along the columns and zero points less
one (its second format: as they are), AWQ keeps (columns, rows) with codes along the rows, eight to a word in the order
0, 2, 4, 6, 1, 3, 5, 7. The logits are transformers' with w = scale * (q - zero).
"""

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import golden_models
from golden_models import rng_for, write_json

GROUP = 32
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
# name: (what, quantization_config without the method's name)
FOLDERS = {
    "gptq4": ("GPTQ of 4 bits with zero points", {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False,
                                                  "desc_act": False}),
    "gptq4_order": ("GPTQ, symmetric, whole groups in another order",
                    {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": True}),
    "gptq8": ("GPTQ of 8 bits in its second format, a scale a row",
              {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True, "desc_act": False,
               "checkpoint_format": "gptq_v2"}),
    "awq": ("AWQ", {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}),
}


def grouped(w, config):
    """Codes (rows, columns), zero points and f16 scales (groups, rows) of a weight, rounded to nearest."""
    rows, columns = w.shape
    group = columns if config["group_size"] == -1 else config["group_size"]
    most = 2 ** config["bits"] - 1
    parts = w.reshape(rows, -1, group)
    if config.get("sym"):
        scale = np.abs(parts).max(2) / (most // 2)
        zero = np.full(scale.shape, (most + 1) // 2)
    else:
        low, high = np.minimum(parts.min(2), 0), np.maximum(parts.max(2), 0)
        scale = (high - low) / most
        zero = np.round(-low / scale)
    scale = scale.astype(np.float16)
    codes = np.clip(np.round(parts / scale[..., None].astype(np.float32)) + zero[..., None], 0, most)
    plain = (codes - zero[..., None]) * scale[..., None].astype(np.float32)
    return codes.reshape(rows, columns).astype(int), zero.T.astype(int), scale.T, plain.reshape(rows, columns)


def words(codes, bits, order):
    """Codes along the last axis into words of 32 bits; order[i] is what stands at the i-th place."""
    per = 32 // bits
    groups = codes.reshape(*codes.shape[:-1], -1, per)[..., order].astype(np.uint64)
    return (groups << (bits * np.arange(per, dtype=np.uint64))).sum(-1).astype(np.uint32).view(np.int32)


def pack(name, w, config, rng):
    """(tensors of the folder, the weight they stand for)"""
    bits = config["bits"]
    codes, zeros, scales, plain = grouped(w, config)
    if config["quant_method"] == "awq":
        parts = {"qweight": words(codes.T, 4, AWQ_ORDER), "qzeros": words(zeros, 4, AWQ_ORDER), "scales": scales}
    else:
        order = np.arange(32 // bits)
        stored = zeros if config.get("checkpoint_format") == "gptq_v2" else (zeros - 1) % 2**bits
        group = np.arange(len(zeros))
        if config["desc_act"]:
            group = rng.permutation(group)
        place = np.argsort(group)  # where the group that columns 32 i.. name is kept
        width = w.shape[1] // len(zeros)
        parts = {"qweight": words(codes, bits, order).T, "qzeros": words(stored[place], bits, order),
                 "scales": scales[place], "g_idx": np.repeat(group, width).astype(np.int32)}
    return {f"{name}.{part}": torch.from_numpy(np.ascontiguousarray(x)) for part, x in parts.items()}, plain


def write_packed(out):
    _, config, _, n_tokens, _ = golden_models.MODELS["llama_gqa_untied"]
    config = config | {"num_hidden_layers": 1}
    for name, (what, method) in FOLDERS.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        rng = rng_for(f"packed/{name}")
        tensors, plain = {}, {}
        for key, w in golden_models.random_weights(f"packed/{name}", config, torch.float16).items():
            if ".mlp." in key or ".self_attn." in key:
                base = key.removesuffix(".weight")
                parts, value = pack(base, w.float().numpy(), method, rng)
                tensors |= parts
                plain[key] = torch.from_numpy(value)
            else:
                tensors[key], plain[key] = w, w.float()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        write_json(folder / "config.json", config | {"quantization_config": method})
        kind = golden_models.oracle_config(config)
        kind = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
        model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager", dtype=torch.float32)
        model.load_state_dict(plain)
        tokens = golden_models.some_tokens(f"packed/{name}", n_tokens, config["vocab_size"])
        golden_models.write_golden(folder / "golden.json", folder / "logits.f32", model, tokens, what)
        plain["model.layers.0.mlp.down_proj.weight"].numpy().astype("<f4").tofile(folder / "down_proj.f32")

"""Golden folders with packed weights: a tiny random llama in the layouts of other programs, and its logits.

GPTQ and AWQ are packed here from the descriptions of their layouts. GPTQ stores (columns, rows) with codes along the columns
and zero points minus one (its second format: plain zero points). AWQ stores (columns, rows) with codes along the rows, eight
in a word in the order 0, 2, 4, 6, 1, 3, 5, 7. The logits are transformers' with w = scale * (q - zero).

The bitsandbytes package packs and unpacks its folders itself. FP8, NVFP4 and compressed-tensors' integers are packed here in
the form that vLLM reads: a code times its scale. A scale is for a block, a row, a group or the whole tensor; NVFP4 has a
second scale for the whole tensor.
"""

import bitsandbytes.functional as bnb
import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import golden_gguf
import golden_models
import golden_weights
from golden_experts import GPT_OSS
from golden_weights import rng_for, write_json

GROUP = 32
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
# name: (what, quantization_config)
FOLDERS = {
    "gptq4": ("GPTQ of 4 bits with zero points", {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False,
                                                  "desc_act": False}),
    "gptq4_order": ("GPTQ, symmetric, whole groups in another order",
                    {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": True}),
    "gptq4_mixed": ("GPTQ with act-order: neighbouring columns are of different groups",
                    {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "desc_act": True}),
    "gptq8": ("GPTQ of 8 bits in its second format, a scale a row",
              {"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True, "desc_act": False,
               "checkpoint_format": "gptq_v2"}),
    "bnb4": ("bitsandbytes of 4 bits: NF4 with packed scales in the feed-forward, FP4 in attention",
             {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "bnb8": ("bitsandbytes of 8 bits", {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    "fp8": ("FP8 with a scale for blocks of 16 x 64, for rows (q, k, v) and for the whole (o)",
            {"quant_method": "fp8", "weight_block_size": [16, 64], "activation_scheme": "static"}),
    "nvfp4": ("NVFP4 with a scale for the whole", {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}),
    "words": ("integers packed in words: 8 bits (o), 4 bits (the others), bfloat16 scales",
              {"quant_method": "compressed-tensors", "format": "pack-quantized"}),
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
    """Packs codes along the last axis into 32-bit words; order[i] is the index of the code at position i."""
    per = 32 // bits
    groups = codes.reshape(*codes.shape[:-1], -1, per)[..., order].astype(np.uint64)
    return (groups << (bits * np.arange(per, dtype=np.uint64))).sum(-1).astype(np.uint32).view(np.int32)


def pack(name, w, config, rng):
    """Returns (tensors of the folder, the weight that they represent)."""
    bits = config["bits"]
    mixed = config.get("desc_act") and not config["sym"]
    columns = rng.permutation(w.shape[1]) if mixed else np.arange(w.shape[1])
    codes, zeros, scales, plain = grouped(w[:, columns], config)
    place = np.argsort(columns)
    codes, plain = codes[:, place], plain[:, place]
    if config["quant_method"] == "awq":
        parts = {"qweight": words(codes.T, 4, AWQ_ORDER), "qzeros": words(zeros, 4, AWQ_ORDER), "scales": scales}
    else:
        order = np.arange(32 // bits)
        stored = zeros if config.get("checkpoint_format") == "gptq_v2" else (zeros - 1) % 2**bits
        group = np.arange(len(zeros))
        if config["desc_act"] and not mixed:
            group = rng.permutation(group)
        width = w.shape[1] // len(zeros)
        g_idx = np.repeat(group, width)[place]
        place = np.argsort(group)  # the index of each group in the file
        parts = {"qweight": words(codes, bits, order).T, "qzeros": words(stored[place], bits, order),
                 "scales": scales[place], "g_idx": g_idx.astype(np.int32)}
    return {f"{name}.{part}": torch.from_numpy(np.ascontiguousarray(x)) for part, x in parts.items()}, plain


def pack_bitsandbytes(name, w, config):
    w = torch.from_numpy(w)
    if config.get("load_in_8bit"):
        codes, scb, _ = bnb.int8_vectorwise_quant(w.half())
        parts = {"weight": codes, "SCB": scb, "weight_format": torch.tensor(0, dtype=torch.uint8)}
        plain = codes.float() * (scb * np.float32(1 / 127))[:, None]
        assert torch.allclose(plain, bnb.int8_vectorwise_dequant(codes, scb))
    else:
        nested = ".mlp." in name
        # the CPU code of bitsandbytes 0.50 unpacks blocks longer than a row wrongly
        codes, state = bnb.quantize_4bit(w, blocksize=min(128, w.shape[1]), quant_type="nf4" if nested else "fp4",
                                         compress_statistics=nested)
        parts = {"weight": codes} | {f"weight.{k}": v for k, v in state.as_dict(packed=True).items()}
        plain = bnb.dequantize_4bit(codes, state)
    return {f"{name}.{part}": x.contiguous() for part, x in parts.items()}, plain.numpy()


def pack_fp8(name, w, config):
    rows, columns = w.shape
    down, across = (1, columns) if name[-6:] in ("q_proj", "k_proj", "v_proj") else config["weight_block_size"]
    if name.endswith("o_proj"):
        down, across = rows, columns
    blocks = torch.from_numpy(w).reshape(rows // down, down, columns // across, across)
    scale = blocks.abs().amax((1, 3), keepdim=True) / 448
    codes = (blocks / scale).to(torch.float8_e4m3fn)
    plain = (codes.float() * scale).reshape(rows, columns)
    kind, scale = ("weight_scale_inv", scale[:, 0, :, 0]) if ".mlp." in name else ("weight_scale", scale[:, 0, :, 0].float())
    if name.endswith("o_proj"):
        scale = scale[0, 0]
    return {f"{name}.weight": codes.reshape(rows, columns), f"{name}.{kind}": scale.contiguous(),
            f"{name}.input_scale": torch.tensor(0.25)}, plain.numpy()


E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])


def pack_nvfp4(name, w, _):
    rows, columns = w.shape
    blocks = torch.from_numpy(w).reshape(rows, columns // 16, 16)
    largest = blocks.abs().amax(2, keepdim=True)
    divisor = 6 * 448 / largest.max()
    scale = (largest / 6 * divisor).to(torch.float8_e4m3fn)
    unit = scale.float() * (1 / divisor)
    codes = ((blocks.abs() / unit)[..., None] - E2M1).abs().argmin(-1)
    plain = torch.copysign(E2M1[codes], blocks) * unit
    codes = (codes + 8 * (blocks < 0)).reshape(rows, columns).to(torch.uint8)
    return {f"{name}.weight_packed": codes[:, ::2] | codes[:, 1::2] << 4, f"{name}.weight_scale": scale[..., 0].contiguous(),
            f"{name}.weight_global_scale": divisor.reshape(1),
            f"{name}.input_global_scale": torch.tensor([0.5])}, plain.reshape(rows, columns).numpy()


def pack_words(name, w, _):
    rows, columns = w.shape
    bits = 8 if name.endswith("o_proj") else 4
    groups = torch.from_numpy(w).reshape(rows, columns // GROUP, GROUP)
    scale = (groups.abs().amax(2) / (2 ** (bits - 1) - 1)).bfloat16()
    codes = (groups / scale.float()[..., None]).round()
    packed = words((codes + 2 ** (bits - 1)).reshape(rows, columns).numpy(), bits, np.arange(32 // bits))
    return {f"{name}.weight_packed": torch.from_numpy(packed), f"{name}.weight_scale": scale,
            f"{name}.weight_shape": torch.tensor([rows, columns])}, (codes * scale.float()[..., None]).reshape(rows, columns).numpy()


def pack_compressed(name, w, config):
    return (pack_words if config["format"] == "pack-quantized" else pack_nvfp4)(name, w, config)


OTHERS = {"bitsandbytes": pack_bitsandbytes, "fp8": pack_fp8, "compressed-tensors": pack_compressed}


def pack_mxfp4(w):
    """Experts (experts, in, out) as gpt-oss's files have them: codes and scales of (experts, out, in), and their values."""
    blocks = w.transpose(1, 2).reshape(w.shape[0], w.shape[2], -1, 32)
    power = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True))) - 2
    codes = ((blocks.abs() / 2**power)[..., None] - E2M1).abs().argmin(-1) + 8 * (blocks < 0)
    codes = codes.to(torch.uint8)
    packed, scales = codes[..., ::2] | codes[..., 1::2] << 4, (power[..., 0] + 127).to(torch.uint8)
    return packed.contiguous(), scales, convert_moe_packed_tensors(packed, scales, dtype=torch.float32)


def write_mxfp4(out):
    """gpt-oss with packed experts, as a folder and as GGUF; transformers unpacks them."""
    folder = out / "mxfp4"
    folder.mkdir(parents=True, exist_ok=True)
    config, tensors, plain = GPT_OSS | {"num_hidden_layers": 1, "layer_types": ["sliding_attention"]}, {}, {}
    for key, w in golden_weights.random_weights("packed/mxfp4", config, torch.float32).items():
        tensors[key] = plain[key] = w
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            del tensors[key]
            tensors[key + "_blocks"], tensors[key + "_scales"], plain[key] = pack_mxfp4(w)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    method = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                  "model.embed_tokens", "lm_head"]}
    write_json(folder / "config.json", config | {"quantization_config": method})
    kind = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(
        kind, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)
    model.load_state_dict(plain)
    tokens = golden_weights.some_tokens("packed/mxfp4", 32, config["vocab_size"])
    golden_weights.write_golden(folder / "golden.json", folder / "logits.f32", model, tokens, "gpt-oss with MXFP4 experts")
    golden_gguf.write_gguf(folder / "model.gguf", config, "gpt_oss", plain,
                           lambda name: gguf.GGMLQuantizationType.MXFP4 if name.endswith("exps.weight") else None)


def write_packed(out):
    write_mxfp4(out)
    _, base_config, _, n_tokens, _ = golden_models.MODELS["llama_gqa_untied"]
    for name, (what, method) in FOLDERS.items():
        other = OTHERS.get(method["quant_method"])
        config = base_config | {"num_hidden_layers": 1} | ({"intermediate_size": 128} if other else {})
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        rng = rng_for(f"packed/{name}")
        tensors, plain = {}, {}
        for key, w in golden_weights.random_weights(f"packed/{name}", config, torch.float16).items():
            if ".mlp." in key or ".self_attn." in key:
                base = key.removesuffix(".weight")
                w = w.float().numpy()
                parts, value = other(base, w, method) if other else pack(base, w, method, rng)
                tensors |= parts
                plain[key] = torch.from_numpy(value)
            else:
                tensors[key], plain[key] = w, w.float()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        write_json(folder / "config.json", config | {"quantization_config": method})
        kind = golden_weights.oracle_config(config)
        kind = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
        model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager", dtype=torch.float32)
        model.load_state_dict(plain)
        tokens = golden_weights.some_tokens(f"packed/{name}", n_tokens, config["vocab_size"])
        golden_weights.write_golden(folder / "golden.json", folder / "logits.f32", model, tokens, what)
        plain["model.layers.0.mlp.down_proj.weight"].numpy().astype("<f4").tofile(folder / "down_proj.f32")

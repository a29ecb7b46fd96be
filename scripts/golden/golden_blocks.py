"""Golden blocks and GGUF files: every block format that chaski imports, unpacked by the gguf package.

Blocks are random bytes and not the output of a quantizer, because a quantizer never uses some of the codes that a reader
must understand. Only the f16 fields are chosen, because random ones could be infinite or extreme.
"""

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, TokenType

import golden_configs
import golden_gguf
import golden_models
import golden_twins
import golden_weights
import grids
from golden_weights import rng_for, write_json

# The byte offsets of a block's f16 scale and f16 minimum (None: it has none), and the minimum, in units of the scale, that
# centres random codes on zero. ggml adds the minimum in Q4_1 and Q5_1 and subtracts it in the K formats.
FIELDS = {
    Type.Q4_0: (0, None, 0), Type.Q4_1: (0, 2, -7.5), Type.Q5_0: (0, None, 0), Type.Q5_1: (0, 2, -15.5),
    Type.Q8_0: (0, None, 0), Type.Q2_K: (80, 82, 1.5), Type.Q3_K: (108, None, 0), Type.Q4_K: (0, 2, 7.5),
    Type.Q5_K: (0, 2, 15.5), Type.Q6_K: (208, None, 0), Type.IQ4_NL: (0, None, 0), Type.IQ4_XS: (0, None, 0),
    Type.TQ1_0: (52, None, 0), Type.TQ2_0: (64, None, 0), Type.MXFP4: (None, None, 0), Type.NVFP4: (None, None, 0),
    Type.IQ3_S: (0, None, 0), Type.IQ3_XXS: (0, None, 0), Type.IQ2_S: (0, None, 0), Type.IQ2_XS: (0, None, 0),
    Type.IQ2_XXS: (0, None, 0), Type.IQ1_S: (0, None, 0), Type.IQ1_M: (None, None, 0),
}


def put_tq1_0(blocks, _):
    """The bytes that encoders write; other bytes would have the same digits."""
    for digits, at in ((5, slice(0, 48)), (4, slice(48, 52))):
        number = blocks[:, at].astype(int) % 3**digits * 3**(5 - digits)
        blocks[:, at] = (number * 256 + 242) // 243


def put_mxfp4(blocks, scales):
    """The exponent of each scale; for edge cases (see edge_scales), the extreme exponents 0 and 1."""
    exponents = np.where(np.abs(scales) < 2.0**-10, [0, 1] * (len(scales) // 2), 128 + np.log2(np.abs(scales) + 1e-30))
    blocks[:, 0] = exponents.astype(np.uint8)


def put_nvfp4(blocks, scales):
    """e4m3 codes at and near each scale, without NaN. The last has a sign bit, which readers ignore."""
    code = gguf.quants.NVFP4.fp32_to_ue4m3(2 * np.abs(scales).astype(np.float32))
    blocks[:, :4] = np.clip(code.reshape(-1, 1).astype(int) + [0, -3, 2, 1], 0, 126) | [0, 0, 0, 128]


def put_iq1_m(blocks, scales):
    """The four nibbles of an f16, each in the top bits of one of four 16-bit words."""
    half = scales.astype("<f2").view("<u2")
    for i in range(4):
        top = blocks[:, 49 + 2 * i]
        blocks[:, 49 + 2 * i] = (top & 15) | (half >> 4 * i & 15) << 4


# For formats without an f16 scale, or with unused codes: sets the fields of each block from a scale.
CHOSEN = {Type.TQ1_0: put_tq1_0, Type.MXFP4: put_mxfp4, Type.NVFP4: put_nvfp4, Type.IQ1_M: put_iq1_m}


def put_f16(blocks, offset, values):
    blocks[:, offset:offset + 2] = values.astype("<f2").reshape(-1, 1).view(np.uint8)


def edge_scales(n, rng, shift):
    """f16 values of both signs. The first ones (rotated by `shift`) are edge cases of conversions."""
    x = rng.uniform(0.01, 0.1, n) * rng.choice([-1, 1], n)
    x[:5] = [0.0, -0.0, 2.0**-24 * 0x155, -2.0**-24, 0.5]  # zeros, two subnormals (one is the smallest), a large number
    return np.roll(x, shift)


def edge_blocks(kind, n, rng):
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    scale, minimum, _ = FIELDS[kind]
    scales = edge_scales(n, rng, 0)
    if scale is not None:
        put_f16(blocks, scale, scales)
    if kind in CHOSEN:
        CHOSEN[kind](blocks, scales)
    if minimum is not None:  # rotated, so that a zero scale occurs with a minimum that is not zero
        put_f16(blocks, minimum, 4 * edge_scales(n, rng, 3))
    return blocks


def plain_values(kind, n, rng):
    """f16 or bf16 numbers of both signs in the range of weights, with zeros and subnormals."""
    x = (rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 1, n)).astype("<f4")
    x[:6] = [0.0, -0.0, 1.0, -2.0, 65504.0, 2.0**-24]
    if kind is Type.F16:
        return x.astype("<f2").reshape(-1, 1).view(np.uint8)
    x[6:8] = [2.0**-130, -2.0**-133]  # subnormal in f32 and in bf16
    return (x.view("<u4") >> 16).astype("<u2").reshape(-1, 1).view(np.uint8)


def write_blocks(out):
    out.mkdir(parents=True, exist_ok=True)
    index = {}
    for kind in [*FIELDS, Type.F16, Type.BF16]:
        rng = rng_for(f"blocks/{kind.name}")
        values, size = gguf.GGML_QUANT_SIZES[kind]
        n = {256: 8, 64: 24, 32: 24, 1: 768}[values]
        blocks = plain_values(kind, n, rng) if values == 1 else edge_blocks(kind, n, rng)
        unpacked = gguf.quants.dequantize(blocks, kind).astype("<f4")
        assert unpacked.shape == (n, values) and np.isfinite(unpacked).all()
        (out / f"{kind.name}.bin").write_bytes(blocks.tobytes() + unpacked.tobytes())
        index[kind.name] = {"n_blocks": n, "block_bytes": size, "values_per_block": values}
    write_json(out / "blocks.json", index)
    (out / "grids.bin").write_bytes(b"".join(packed_grid(name) for name in grids.NAMES))


def packed_grid(name):
    """A table of the IQ formats in 16 bits a tuple: 2 bits for a digit below 3, 3 bits for one below 8; first digit lowest."""
    tuples = grids.digits(name)
    return (tuples << (16 // tuples.shape[1] - (tuples.shape[1] == 4)) * np.arange(tuples.shape[1])).sum(1).astype("<u2").tobytes()


def random_matrix(kind, rows, columns, sigma, rng):
    """Random valid blocks whose values have a deviation of about `sigma`, as bytes (rows, bytes a row)."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    n = rows * columns // values
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    scale, minimum, centre = FIELDS[kind]
    unit = rng.uniform(0.7, 1.3, n) * rng.choice([-1, 1], n)

    def scale_by(factor):
        if scale is not None:
            put_f16(blocks, scale, factor * unit)
        if kind in CHOSEN:
            CHOSEN[kind](blocks, factor * unit)
        if minimum is not None:
            put_f16(blocks, minimum, factor * centre * unit)

    scale_by(1.0)
    scale_by(sigma / gguf.quants.dequantize(blocks, kind).std())
    return blocks.reshape(rows, -1)


def quantised_matrix(kind, rows, columns, sigma, rng):
    return gguf.quants.quantize((sigma * rng.standard_normal((rows, columns))).astype(np.float32), kind)


MATRICES = ["token_embd", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "output"]

# name: (the format of each matrix above, the function that fills it, hidden, ffn, head_dim)
# The K formats need rows of 256. The other files are smaller to keep the folder small.
SAMPLES = {
    "tiny_llama_q8_0": ([Type.Q8_0] * 9, quantised_matrix, 128, 192, 32),
    "tiny_llama_q4_0": ([Type.Q4_0] * 9, quantised_matrix, 128, 192, 32),
    "tiny_llama_mixed": ([Type.Q4_1, Type.Q4_K, Type.Q6_K, Type.Q5_K, Type.Q3_K, Type.Q2_K, Type.IQ4_XS, Type.Q5_1,
                          Type.IQ4_NL], random_matrix, 256, 256, 64),
    "tiny_llama_floats": ([Type.NVFP4, Type.MXFP4, Type.TQ2_0, Type.TQ1_0, Type.NVFP4, Type.TQ1_0, Type.TQ2_0,
                           Type.MXFP4, Type.NVFP4], random_matrix, 256, 256, 64),
    "tiny_llama_grids": ([Type.IQ2_S, Type.IQ2_XXS, Type.IQ2_XS, Type.IQ3_XXS, Type.IQ3_S, Type.IQ1_M, Type.IQ1_S,
                          Type.IQ2_XS, Type.IQ3_S], random_matrix, 256, 256, 64),
    "tiny_llama_nvfp4": ([Type.NVFP4] * 9, random_matrix, 64, 64, 16),  # each has a scale tensor
}
HEADS, KV_HEADS, VOCAB, CONTEXT, SAMPLE_TOKENS = 4, 2, 64, 128, 20


def vocabulary():
    """64 entries like SentencePiece's: control, byte and normal pieces; each longer piece is a merge of shorter ones."""
    letters = "etaoinshrdlucmwfgypbvkxjqz"
    merges = ["▁t", "he", "▁a", "in", "▁the", "▁s", "er", "an", "re", "nd", "▁w", "ou", "▁and", "ing", "ed", "▁to",
              "▁i", "en", "at", "▁was", "is", "as", "▁he", "on", "it", "▁l", "▁b", "▁she"]
    pieces = ["<unk>", "<s>", "</s>", "<0x0A>", "<0x20>", "<0x2E>"] + merges + ["▁"] + list(letters)
    pieces += [".", ",", "!"]
    assert len(pieces) == VOCAB
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 3
    kinds += [TokenType.NORMAL] * (VOCAB - len(kinds))
    scores = [0.0] * 6 + [-float(i) for i in range(VOCAB - 6)]
    return pieces, scores, kinds


def add_metadata(w, hidden, ffn, head_dim):
    w.add_name("chaski golden sample")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(hidden)
    w.add_block_count(1)
    w.add_feed_forward_length(ffn)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(head_dim)
    w.add_vocab_size(VOCAB)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    pieces, scores, kinds = vocabulary()
    w.add_tokenizer_model("llama")
    w.add_token_list(pieces)
    w.add_token_scores(scores)
    w.add_token_types(kinds)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)


def shapes(hidden, ffn, head_dim):
    """(rows, columns) of each matrix; a row computes one output."""
    q, kv = HEADS * head_dim, KV_HEADS * head_dim
    return {"token_embd": (VOCAB, hidden), "attn_q": (q, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden),
            "attn_output": (hidden, q), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn),
            "output": (VOCAB, hidden)}


def add_tensors(w, name, kinds, fill, hidden, ffn, head_dim):
    rng = rng_for(name)
    for role, kind in zip(MATRICES, kinds):
        prefix = "" if role in ("token_embd", "output") else "blk.0."
        rows, columns = shapes(hidden, ffn, head_dim)[role]
        sigma = (0.5 if role == "token_embd" else 2.5 / columns**0.5 if role == "output" else 1.2 / columns**0.5)
        under = rng.uniform(0.5, 2) if name == "tiny_llama_nvfp4" else 1
        w.add_tensor(f"{prefix}{role}.weight", fill(kind, rows, columns, sigma / under, rng), raw_dtype=kind)
        if under != 1:
            w.add_tensor(f"{prefix}{role}.scale", np.array([under], np.float32))
            w.add_tensor(f"{prefix}{role}.input_scale", np.array([0.5], np.float32))
    for norm in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        w.add_tensor(f"{norm}.weight", (1 + 0.25 * rng.standard_normal(hidden)).astype(np.float32))


def write_gguf_samples(out):
    out.mkdir(parents=True, exist_ok=True)
    for name, (kinds, fill, hidden, ffn, head_dim) in SAMPLES.items():
        path = out / f"{name}.gguf"
        writer = GGUFWriter(path, "llama")
        add_metadata(writer, hidden, ffn, head_dim)
        add_tensors(writer, name, kinds, fill, hidden, ffn, head_dim)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        tokens = golden_weights.some_tokens(name, SAMPLE_TOKENS, VOCAB)
        what = f"{name}.gguf, dequantised: " + ", ".join(f"{r} {k.name}" for r, k in zip(MATRICES, kinds))
        golden_weights.write_golden(out / f"{name}.json", out / f"{name}.f32", golden_models.llama_from_gguf(path),
                                    tokens, what)


def write_bitnet_sample(out):
    """BitNet in llama.cpp's form: TQ1_0 in attention, TQ2_0 in the feed-forward, a scale tensor for each matrix."""
    name = "tiny_bitnet"
    config = golden_configs.BITNET | {
        "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "num_key_value_heads": 1, "vocab_size": VOCAB}
    twin = golden_twins.bitnet_twin(config)
    weights = golden_twins.ternary(golden_weights.random_weights(name, twin, torch.float32))

    def kind_of(tensor):
        part = tensor.split(".")[-2]
        kinds = {"attn_q": Type.TQ1_0, "attn_k": Type.TQ1_0, "attn_v": Type.TQ1_0, "attn_output": Type.TQ1_0,
                 "ffn_gate": Type.TQ2_0, "ffn_up": Type.TQ2_0, "ffn_down": Type.TQ2_0}
        return kinds.get(part) if tensor.endswith(".weight") else None

    golden_gguf.write_gguf(out / f"{name}.gguf", twin, "bitnet", weights, kind_of)
    golden_weights.write_golden(out / f"{name}.json", out / f"{name}.f32", golden_twins.load_twin(config, weights),
                                golden_weights.some_tokens(name, SAMPLE_TOKENS, VOCAB),
                                "BitNet with TQ1_0 and TQ2_0 matrices: transformers, with its own layer for them")

"""Golden blocks and GGUF files: what the gguf package makes of every block format we import.

Blocks are random bytes, not the output of a quantizer, because a quantizer never uses some of the codes a reader must
understand. Only the f16 fields are chosen: random ones would be infinite or absurd.
"""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, TokenType

import golden_models
from golden_models import rng_for, write_json

# Where a block keeps its f16 scale and its f16 minimum (byte offsets, None: has none), and the minimum, in units of the
# scale, that centres random codes on zero. ggml adds the minimum in Q4_1 and Q5_1 and subtracts it in the K formats.
FIELDS = {
    Type.Q4_0: (0, None, 0), Type.Q4_1: (0, 2, -7.5), Type.Q5_0: (0, None, 0), Type.Q5_1: (0, 2, -15.5),
    Type.Q8_0: (0, None, 0), Type.Q2_K: (80, 82, 1.5), Type.Q3_K: (108, None, 0), Type.Q4_K: (0, 2, 7.5),
    Type.Q5_K: (0, 2, 15.5), Type.Q6_K: (208, None, 0), Type.IQ4_NL: (0, None, 0), Type.IQ4_XS: (0, None, 0),
}


def put_f16(blocks, offset, values):
    blocks[:, offset:offset + 2] = values.astype("<f2").reshape(-1, 1).view(np.uint8)


def edge_scales(n, rng, shift):
    """f16 values of either sign, the first ones (rotated by `shift`) being the cases that break conversions."""
    x = rng.uniform(0.01, 0.1, n) * rng.choice([-1, 1], n)
    x[:5] = [0.0, -0.0, 2.0**-24 * 0x155, -2.0**-24, 0.5]  # zeros, two subnormals (the least one too), a large one
    return np.roll(x, shift)


def edge_blocks(kind, n, rng):
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    scale, minimum, _ = FIELDS[kind]
    put_f16(blocks, scale, edge_scales(n, rng, 0))
    if minimum is not None:  # rotated, so that a zero scale meets a minimum that is not
        put_f16(blocks, minimum, 4 * edge_scales(n, rng, 3))
    return blocks


def plain_values(kind, n, rng):
    """f16 or bf16 numbers of either sign over the range that weights have, with zeros and subnormals."""
    x = (rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 1, n)).astype("<f4")
    x[:6] = [0.0, -0.0, 1.0, -2.0, 65504.0, 2.0**-24]
    if kind is Type.F16:
        return x.astype("<f2").reshape(-1, 1).view(np.uint8)
    x[6:8] = [2.0**-130, -2.0**-133]  # subnormal in f32 and so in bf16
    return (x.view("<u4") >> 16).astype("<u2").reshape(-1, 1).view(np.uint8)


def write_blocks(out):
    out.mkdir(parents=True, exist_ok=True)
    index = {}
    for kind in [*FIELDS, Type.F16, Type.BF16]:
        rng = rng_for(f"blocks/{kind.name}")
        values, size = gguf.GGML_QUANT_SIZES[kind]
        n = {256: 8, 32: 24, 1: 768}[values]
        blocks = plain_values(kind, n, rng) if values == 1 else edge_blocks(kind, n, rng)
        unpacked = gguf.quants.dequantize(blocks, kind).astype("<f4")
        assert unpacked.shape == (n, values) and np.isfinite(unpacked).all()
        (out / f"{kind.name}.bin").write_bytes(blocks.tobytes() + unpacked.tobytes())
        index[kind.name] = {"n_blocks": n, "block_bytes": size, "values_per_block": values}
    write_json(out / "blocks.json", index)


def random_matrix(kind, rows, columns, sigma, rng):
    """Random valid blocks whose values have about the deviation `sigma`, as bytes (rows, bytes per row)."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    n = rows * columns // values
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    scale, minimum, centre = FIELDS[kind]
    unit = rng.uniform(0.7, 1.3, n) * rng.choice([-1, 1], n)

    def scale_by(factor):
        put_f16(blocks, scale, factor * unit)
        if minimum is not None:
            put_f16(blocks, minimum, factor * centre * unit)

    scale_by(1.0)
    scale_by(sigma / gguf.quants.dequantize(blocks, kind).std())
    return blocks.reshape(rows, -1)


def quantised_matrix(kind, rows, columns, sigma, rng):
    return gguf.quants.quantize((sigma * rng.standard_normal((rows, columns))).astype(np.float32), kind)


MATRICES = ["token_embd", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "output"]

# name: (the format of each matrix above, how it is filled, hidden, ffn, head_dim)
# The K formats need rows of 256; the other two files are smaller, and grouped otherwise, to keep the folder light.
SAMPLES = {
    "tiny_llama_q8_0": ([Type.Q8_0] * 9, quantised_matrix, 128, 192, 32),
    "tiny_llama_q4_0": ([Type.Q4_0] * 9, quantised_matrix, 128, 192, 32),
    "tiny_llama_mixed": ([Type.Q4_1, Type.Q4_K, Type.Q6_K, Type.Q5_K, Type.Q3_K, Type.Q2_K, Type.IQ4_XS, Type.Q5_1,
                          Type.IQ4_NL], random_matrix, 256, 256, 64),
}
HEADS, KV_HEADS, VOCAB, CONTEXT, SAMPLE_TOKENS = 4, 2, 64, 128, 20


def vocabulary():
    """64 SentencePiece-like entries: control, byte and normal pieces; each longer piece is a merge of shorter ones."""
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
    """(rows, columns) of each matrix; a row is what one output is made from."""
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
        w.add_tensor(f"{prefix}{role}.weight", fill(kind, rows, columns, sigma, rng), raw_dtype=kind)
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
        tokens = golden_models.some_tokens(name, SAMPLE_TOKENS, VOCAB)
        what = f"{name}.gguf, dequantised: " + ", ".join(f"{r} {k.name}" for r, k in zip(MATRICES, kinds))
        golden_models.write_golden(out / f"{name}.json", out / f"{name}.f32", golden_models.llama_from_gguf(path),
                                   tokens, what)

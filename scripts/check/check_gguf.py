#!/usr/bin/env python3
"""Exports golden models as GGUF and compares the logits of llama.cpp with those of transformers.

    python3 scripts/check/check_gguf.py [MODEL ...]

Each folder of tests/golden/models (or the named ones, or folders elsewhere that have golden.json and logits.f32) is written
by `chaski convert` (build/chaski, or CHASKI_BIN). llama.cpp opens the file in a process of its own, because it may abort,
and computes the logits of the stored tokens as far as the context of the file. Prints the largest difference as a part of
the largest logit, or the line with which chaski refuses the export. Fails if llama.cpp refuses a file or differs by more
than 1e-3 (2e-2 with 16-bit weights, by which it also rounds activations), except for the models in LIMITS. Needs
llama-cpp-py-sync (tried: 0.11739, llama.cpp b11739) and numpy.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


# Golden models that llama.cpp does not compute as they are, although the file says what they are.
UNKNOWN = "llama.cpp does not know this architecture"
LIMITS = {
    "baichuan": "llama.cpp tells rotary positions from ALiBi by 32 or 40 layers", "baichuan2": "as baichuan",
    "bailingmoe2": "llama.cpp expects query heads that are together as wide as the model",
    "bitnet": "llama.cpp does not round the inputs of matrices to 8 bits", "bitnet_online": "as bitnet",
    "codegen": UNKNOWN, "glm": UNKNOWN, "gpt_neo": UNKNOWN, "gptj": UNKNOWN, "helium": UNKNOWN, "opt": UNKNOWN,
    "chatglm": "llama.cpp expects heads that are together as wide as the model",
    "deci": "llama.cpp stops at layers without keys and values (also with the gguf package's file)",
    "deepseek_v2": "llama.cpp ranks groups of experts by the two best, as V3 does; V2 by the best",
    "dots1": "llama.cpp expects as many key heads as query heads",
    "command_r_plus": "llama.cpp reads norms of heads in models of 64 layers or more",
    "exaone4": "llama.cpp applies the window in the model of 64 layers",
    "gemma2": "llama.cpp scales scores by the width of heads, as in the published models", "gemma3": "as gemma2",
    "gemma4": "llama.cpp reuses the keys of the two layers that the published models reuse",
    "gemma3n": "llama.cpp has the counts, widths and closed gates of the published models",
    "llama_rope_dynamic": "the logits are of a sequence longer than the file's context, where dynamic changes all positions",
    "mistral_window": "llama.cpp ignores the window of llama", "phi3": "llama.cpp ignores the window of phi3",
    "gpt_oss": "llama.cpp rounds the bounds of yarn to whole pairs of channels",
    "llama4": "llama.cpp has the blocks and temperatures of the published models",
    "olmoe": "llama.cpp expects as many key heads as query heads",
    "phimoe": "llama.cpp computes it with RMS norms and weighs experts by a soft-max",
    "qwen3vl": "llama.cpp rotates by the sections of the published models",
    "phi3_longrope_short": "llama.cpp's contexts have at least 256 tokens, for which this model has the long factors",
}


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def without_tokenizer(path):
    """Adds the key that llama.cpp expects in a file without a tokenizer. Golden models have none."""
    data = path.read_bytes()
    if b"tokenizer.ggml.model" in data:
        return
    tensors, keys = struct.unpack_from("<QQ", data, 8)
    added = text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("no_vocab")
    filler = text("check.filler") + struct.pack("<I", 8) + text("")
    filler = text("check.filler") + struct.pack("<I", 8) + text(" " * (-len(added + filler) % 32))  # keeps the alignment
    path.write_bytes(data[:8] + struct.pack("<QQ", tensors, keys + 2) + added + filler + data[24:])


def logits_of(path, tokens):
    """In a process of its own: the logits of all tokens, by llama.cpp."""
    from llama_cpp_py_sync._cffi_bindings import get_ffi, get_lib
    lib, ffi = get_lib(), get_ffi()
    lib.llama_backend_init()
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    if model == ffi.NULL:
        raise SystemExit("llama.cpp does not open it")
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = max(256, len(tokens))
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = 0  # f32
    params.flash_attn_type = 0
    context = lib.llama_init_from_model(model, params)
    if context == ffi.NULL:
        raise SystemExit("llama.cpp makes no context")
    batch = lib.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    if lib.llama_decode(context, batch):
        raise SystemExit("llama.cpp does not decode")
    n = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    rows = [np.frombuffer(ffi.buffer(lib.llama_get_logits_ith(context, i), 4 * n), np.float32) for i in range(len(tokens))]
    sys.stdout.buffer.write(np.stack(rows).tobytes())


def check(folder, temp):
    golden = json.loads((folder / "golden.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    file = temp / "model.gguf"
    made = subprocess.run([os.environ.get("CHASKI_BIN", "build/chaski"), "convert", "-q", folder, file], capture_output=True, text=True)
    if made.returncode:
        return True, "not exported: " + made.stderr.strip()
    without_tokenizer(file)
    longest = min(config.get(k, 1 << 30) for k in ("max_position_embeddings", "n_positions", "seq_length"))
    tokens = golden["tokens"][:longest]
    found = subprocess.run([sys.executable, __file__, "--logits", file, *map(str, tokens)], capture_output=True)
    if found.returncode:
        lines = [line for line in found.stderr.decode().splitlines() if "error" in line.lower() or "ABORT" in line or "assert" in line.lower()]
        return False, "llama.cpp: " + (lines or found.stderr.decode().splitlines() or [f"exit status {found.returncode}"])[0]
    want = np.fromfile(folder / "logits.f32", np.float32).reshape(-1, golden["vocab"])[:longest]
    error = np.abs(np.frombuffer(found.stdout, np.float32).reshape(want.shape) - want).max() / np.abs(want).max()
    half = config.get("torch_dtype") in ("bfloat16", "float16")
    return bool(error <= (2e-2 if half else 1e-3)), f"{error:.1e}"


def main():
    if sys.argv[1:2] == ["--logits"]:
        return logits_of(sys.argv[2], list(map(int, sys.argv[3:])))
    base = Path("tests/golden/models")
    folders = [Path(name) if Path(name).is_dir() else base / name for name in sys.argv[1:]]
    folders = folders or sorted(path for path in base.iterdir() if (path / "golden.json").exists())
    wrong = 0
    for folder in folders:
        with tempfile.TemporaryDirectory() as temp:
            good, line = check(folder, Path(temp))
        limit = "" if good else LIMITS.get(folder.name, "")
        wrong += not good and not limit
        print(f"{'ok   ' if good else 'limit' if limit else 'WRONG'} {folder.name}: {line}", flush=True)
        if limit:
            print(f"      ({limit})")
    print(f"{len(folders)} models, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())

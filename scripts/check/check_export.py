#!/usr/bin/env python3
"""Compares a folder that `chaski convert --layout` wrote with the model that it was made from.

    chaski convert model.gguf folder --layout gptq
    python3 scripts/check/check_export.py folder model.gguf [text.txt ...]

The folder is unpacked here by the published layouts of GPTQ and AWQ, in plain numpy, without any code of chaski. The gguf
package reads the weights of model.gguf. Every weight must be equal to the bit. If texts are given, Hugging Face's tokenizers
library reads the folder's tokenizer.json. It must give the same tokens for each text as `build/chaski tokenize` (CHASKI_BIN)
with model.gguf. Needs numpy, safetensors and gguf; for texts also tokenizers.

    python3 scripts/check/check_export.py folder model.quipu --transformers "The capital of France is"

loads the folder with transformers and its GPTQ and AWQ layers (from gptqmodel), on the CPU. chaski (build/chaski, or CHASKI_BIN) with
model.quipu continues the text by 64 tokens. Prints how much the log probabilities of the two differ after each of these tokens, and the
same for a model with the plain floats that are unpacked here. `chaski quantize --type f32` of the packed model makes a model.quipu that
multiplies the same floats. Needs torch, transformers, accelerate, optimum and gptqmodel.
"""
import argparse
import json
import os
import subprocess

import gguf
import numpy as np
from safetensors.numpy import load_file

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the column in the i-th nibble of a word
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def nibbles(words, bits):
    """Splits words of 32 bits into codes, along a new last axis."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (words.view(np.uint32)[..., None] >> shifts) & np.uint32(2**bits - 1)


def awq(words):
    codes = np.empty((*words.shape, 8), dtype=np.uint32)
    codes[..., AWQ_ORDER] = nibbles(words, 4)
    return codes.reshape(*words.shape[:-1], -1)


def unpacked(parts, method):
    """The weight as (rows, columns): scale * (code - zero point)."""
    if method["quant_method"] == "awq":
        codes, zeros = awq(parts["qweight"]), awq(parts["qzeros"])
        groups = np.arange(len(codes)) // method["group_size"]
    else:
        bits = method["bits"]
        codes = nibbles(parts["qweight"], bits).transpose(0, 2, 1).reshape(-1, parts["qweight"].shape[1])
        zeros = nibbles(parts["qzeros"], bits).reshape(len(parts["qzeros"]), -1)
        zeros = zeros + (method["checkpoint_format"] == "gptq")
        groups = parts["g_idx"]
    scales = parts["scales"].astype(np.float32)
    return (scales[groups] * (codes.astype(np.float32) - zeros.astype(np.float32)[groups])).T


def theirs(name):
    """The tensor's name in a GGUF file."""
    base, end = name.rsplit(".", 1)
    if base in WHOLE:
        return f"{WHOLE[base]}.{end}"
    _, _, layer, rest = base.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.{end}"


def half_split(w, heads):
    """Reorders rows of q and k to Hugging Face's order, from rows in which neighbours are rotated together."""
    return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def check_tokens(folder, model, texts):
    from tokenizers import Tokenizer
    tokenizer, all = Tokenizer.from_file(f"{folder}/tokenizer.json"), 0
    for text in texts:
        expected = subprocess.run([os.environ.get("CHASKI_BIN", "build/chaski"), "tokenize", "-q", "-m", model, "-f", text, "--ids"],
                              capture_output=True, text=True, check=True).stdout
        with open(text, encoding="utf-8", newline="") as file:
            found = tokenizer.encode(file.read()).ids
        if found != [int(token) for token in expected.split()]:
            raise SystemExit(f"{text}: the tokens differ")
        all += len(found)
    print(f"{all} tokens of {len(texts)} texts are the same")


def read(folder):
    """Returns config.json, the unpacked weights by name, and how many of them were packed."""
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    weights, packed = {}, {}
    for name, value in load_file(f"{folder}/model.safetensors").items():
        base, part = name.rsplit(".", 1)
        if part in ("qweight", "qzeros", "scales", "g_idx"):
            packed.setdefault(base + ".weight", {})[part] = value
        else:
            weights[name] = value.astype(np.float32)
    method = config["quantization_config"]
    return config, weights | {name: unpacked(parts, method) for name, parts in packed.items()}, len(packed)


def compare_bits(folder, model):
    config, weights, packed = read(folder)
    reference = {t.name: t for t in gguf.GGUFReader(model).tensors}
    for name, found in weights.items():
        t = reference.pop(theirs(name))
        want = gguf.dequantize(t.data, t.tensor_type).reshape(found.shape)
        rotated = {"attn_q.": "num_attention_heads", "attn_k.": "num_key_value_heads"}
        for part, heads in rotated.items():
            if part in t.name and config["model_type"] in ("llama", "mistral"):
                want = half_split(want, config[heads])
        if not np.array_equal(found, want):
            raise SystemExit(f"{name}: {np.sum(found != want)} of {want.size} weights differ")
    if reference:
        raise SystemExit(f"the folder does not have {', '.join(reference)}")
    method = config["quantization_config"]
    print(f"{len(weights)} tensors are the same, {packed} of them {method['quant_method']} of {method['bits']} bits")


def compare_logits(folder, model, text):
    import torch
    import transformers

    program = os.environ.get("CHASKI_BIN", "build/chaski")
    said = lambda *words: subprocess.run([program, *words], check=True, stdout=subprocess.PIPE, text=True).stdout
    prompt = [int(word) for word in said("tokenize", "-m", model, "-p", text, "--ids").split()]
    answer = json.loads(said("run", "-m", model, "-p", text, "-n", "64", "--temp", "0", "--ignore-end", "-q", "--kv", "f32", "--logprobs", "20", "--json"))
    places = answer["log_probabilities"]
    ids = torch.tensor([prompt + [place["id"] for place in places]])

    def compare(what, model):
        with torch.no_grad():
            rows = torch.log_softmax(model.eval()(ids).logits[0, len(prompt) - 1:-1].double(), -1)
        same = sum(row.argmax().item() == place["most_probable"][0]["id"] for row, place in zip(rows, places))
        far = [abs(row[one["id"]].item() - one["log_probability"]) for row, place in zip(rows, places) for one in place["most_probable"]]
        print(f"{what}: the top-1 token is the same at {same} of {len(places)} places; log probabilities of the "
              f"20 most probable tokens differ by {np.mean(far):.2g} on average, by {max(far):.2g} at most")

    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, device_map="cpu")
    compare(", ".join(sorted({type(m).__name__ for m in loaded.modules() if hasattr(m, "qweight")})), loaded)
    config, weights, _ = read(folder)
    said = {k: v for k, v in config.items() if k not in ("quantization_config", "model_type", "architectures", "torch_dtype")}
    plain = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(config["model_type"], **said), dtype=torch.float32)
    plain.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(w)) for k, w in weights.items()}, strict=False)
    compare("the same weights as floats", plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("texts", metavar="TEXT", nargs="*")
    parser.add_argument("--transformers", metavar="TEXT")
    args = parser.parse_args()
    if args.transformers and args.texts:
        parser.error("texts have no effect together with --transformers")
    if args.transformers:
        compare_logits(args.folder, args.model, args.transformers)
    else:
        compare_bits(args.folder, args.model)
        if args.texts:
            check_tokens(args.folder, args.model, args.texts)


if __name__ == "__main__":
    main()

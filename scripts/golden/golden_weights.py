"""Random weights of the tiny models, the folders that hold them, and the logits of transformers.

The reference is transformers' eager path with weights and activations in float64. transformers still computes rms_norm,
softmax and the rope angles of the llama family in float32. So the logits are accurate to 1e-6 .. 3e-5 (the latter with
long rope sequences), not to 1e-15.
"""

import json
import math
import zlib

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

import golden_recurrent
from golden_experts import published

# One thread, because the order of torch's additions decides the last bit of a golden file.
torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def rng_for(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def some_tokens(name, n, vocab):
    """Random ids that always include the first and the last id, which show off-by-one errors."""
    tokens = rng_for(f"{name}/tokens").integers(0, vocab, n)
    tokens[1], tokens[n // 2] = vocab - 1, 0
    return tokens.tolist()


def renamed(weights, names):
    out = {}
    for name, w in weights.items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        out[name] = w
    return out


def random_tensor(name, shape, rng):
    """Weights much larger than the usual 0.02, so that attention is sharp and every tensor affects the logits."""
    x = rng.standard_normal(shape)
    if name.endswith("gate_up_proj_bias"):  # gpt-oss limits the sums to 7
        return 4 * x
    if name.endswith((".bias", "_bias")):
        return 0.2 * x
    if name.endswith(".A_log"):  # so that a state remembers some ten tokens
        return x - 2.5
    if name.endswith("correction_bias"):  # scores of a router, from 0 to 1, get it added
        return 0.1 * x
    if len(shape) == 1 or "_norm" in name:  # norm weights: not 1, so that a missing norm is noticed
        return 1 + 0.25 * x
    if any(part in name for part in ("wpe", "wte", "embed")):
        return 0.5 * x
    fan_in = shape[0] if ".c_" in name else shape[-1]  # GPT-2 stores its matrices input-major
    if "attn.attention" in name:  # GPT-Neo does not divide by sqrt(head_dim)
        return 0.75 / math.sqrt(fan_in) * x
    gain = 2.5 if "lm_head" in name else 1.5 if any(p in name for p in ("q_proj", "k_proj", "c_attn", "query_key")) else 1.2
    return gain / math.sqrt(fan_in) * x


def oracle_config(config):
    """The config of the transformers class that computes a model; it differs for models without a class."""
    if config["model_type"] == "exaone":
        given = {"model_type": "llama", "num_hidden_layers": config["num_layers"], "hidden_act": "silu",
                 "rms_norm_eps": config["layer_norm_epsilon"]}
    elif config["model_type"] == "minicpm":
        given = {"model_type": "granite", "embedding_multiplier": config["scale_emb"],
                 "residual_multiplier": config["scale_depth"] / math.sqrt(config["num_hidden_layers"]),
                 "attention_multiplier": (config["hidden_size"] / config["num_attention_heads"]) ** -0.5,
                 "logits_scaling": config["hidden_size"] / config["dim_model_base"]}
    else:
        return dict(config)
    return config | given


# Names in the class that computes the model -> names in the model's own files.
OWN_NAMES = {
    "exaone": [("model.embed_tokens", "transformer.wte"), ("model.norm", "transformer.ln_f"),
               ("model.layers", "transformer.h"), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"),
               ("self_attn.o_proj", "attn.attention.out_proj"), ("self_attn", "attn.attention"),
               ("gate_proj", "c_fc_0"), ("up_proj", "c_fc_1"), ("down_proj", "c_proj")],
}


def own_name(name, config):
    for theirs, own in OWN_NAMES.get(config["model_type"], []):
        name = name.replace(theirs, own)
    return name


def random_weights(name, config, dtype):
    kind = oracle_config(config)
    cls = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
    with torch.device("meta"):
        shapes = {k: tuple(v.shape) for k, v in transformers.AutoModelForCausalLM.from_config(cls).state_dict().items()}
    if cls.tie_word_embeddings:
        del shapes["lm_head.weight"]
    shapes = golden_recurrent.published(published(shapes, config["model_type"]), config["model_type"])
    rng = rng_for(name)
    weights = {k: torch.from_numpy(random_tensor(k, s, rng)).to(dtype) for k, s in sorted(shapes.items())}
    if config["model_type"] == "gpt_neo":  # the name in published files
        weights = renamed(weights, {"lm_head": "embed_out"})
    if config["model_type"] in ("gemma", "gemma2", "gemma3_text"):  # the model adds 1
        weights = {k: w - 1 if w.dim() == 1 else w for k, w in weights.items()}
    if config["model_type"] == "gemma3n_text":  # ids without a row use the first one; in GGUF they have none
        weights["model.embed_tokens_per_layer.weight"][0] = 0
    weights = {own_name(k, config): w for k, w in weights.items()}
    return openai_names(weights, config) if config["model_type"] == "gpt2" else weights


def openai_names(weights, config):
    """The published GPT-2 files have no prefix "transformer." and store the causal mask of each layer as a tensor."""
    n = config["n_positions"]
    masks = {f"h.{i}.attn.bias": torch.ones(n, n).tril().reshape(1, 1, n, n) for i in range(config["n_layer"])}
    return {k.removeprefix("transformer."): v for k, v in weights.items()} | masks


def save_shards(folder, weights):
    """Two shards that split a layer, as real shards do."""
    names = sorted(weights)
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    where = {k: files[3 * i // (2 * len(names))] for i, k in enumerate(names)}  # the first two thirds, the rest
    for file in files:
        save_file({k: weights[k] for k in names if where[k] == file}, folder / file, metadata={"format": "pt"})
    total = sum(w.numel() * w.element_size() for w in weights.values())
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": where})


def write_json(path, value):
    """One line a key, so that a list of 96 tokens is not 96 lines of diff."""
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def load_folder(folder, **change):
    config = json.loads((folder / "config.json").read_text()) | change
    kind = oracle_config(config)
    kind = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind)
    if config["model_type"] not in ("exaone", "minicpm"):
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=kind, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)
    model = transformers.AutoModelForCausalLM.from_config(kind, attn_implementation="eager")
    stored = load_file(folder / "model.safetensors")
    model.load_state_dict({k: stored[own_name(k, config)].float() for k in model.state_dict()})
    return model


def run(model, tokens):
    """Logits (n_tokens, vocab) of a sequence in one call, in the dtype of the model."""
    model.eval()
    with torch.no_grad():
        more = model.inputs(len(tokens)) if hasattr(model, "inputs") else {}
        return model(torch.tensor([tokens]), use_cache=False, **more).logits[0].double().numpy()


def write_golden(json_path, f32_path, model, tokens, what, last=None, context=None):
    """Stores the logits of all positions, or only of the last ones if the vocabulary is large."""
    in_f32 = run(model.float(), tokens)
    logits = run(model.double(), tokens)
    store_golden(json_path, f32_path, logits, in_f32, tokens, what, last, context)
    return logits


def store_golden(json_path, f32_path, logits, in_f32, tokens, what, last=None, context=None):
    """The logits of float64 arithmetic, and how far those of float32 are from them."""
    positions = list(range(len(tokens)))[-last:] if last else None
    kept = logits if last is None else logits[positions]
    kept.astype("<f4").tofile(f32_path)
    # f32_error is the error of float32 arithmetic for this model; a test's tolerance must not be smaller.
    golden = {"what": what, "n_tokens": len(tokens), "vocab": logits.shape[1], "tokens": tokens,
              "max_abs": float(f"{np.abs(kept).max():.4g}"), "f32_error": float(f"{np.abs(in_f32 - logits).max():.1e}")}
    if context:
        golden["context"] = context
    write_json(json_path, golden if last is None else golden | {"positions": positions})

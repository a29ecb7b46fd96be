"""Based, computed by a twin of ours, because the authors' code needs a GPU: one token after another, in float64, with the names
and the feature map of that code (github.com/HazyResearch/based).
"""

import numpy as np

from golden_weights import rng_for

MIXERS = "based.models.mixers."

BASED = {
    "architectures": ["GPTLMHeadModel"], "_target_": "based.models.gpt.GPT2MixerConfig", "model_type": "based", "n_embd": 48,
    "n_layer": 4, "n_head": 3, "n_inner": 64, "n_positions": 2048, "max_position_embeddings": 0, "vocab_size": 96,
    "pad_vocab_size_multiple": 8, "layer_norm_epsilon": 1e-5, "rms_norm": True, "activation_function": "swiglu",
    "rotary_emb_fraction": 1, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False, "out_proj_bias": False,
    "alt_mixer_layers": [1], "alt_mixer_2_layers": [2],
    "mixer": {"_target_": MIXERS + "convolution.BaseConv", "expand_proj": 4, "use_bias": True, "l_max": 2048, "kernel_sizes": 3},
    "alt_mixer": {"_target_": MIXERS + "linear_attention.LinearAttention", "num_heads": 4, "feature_dim": 8, "l_max": 2048,
                  "feature_map": {"_target_": MIXERS + "linear_attention.TaylorExp", "input_dim": 8}},
    "alt_mixer_2": {"_target_": MIXERS + "slide_attention.SlidingAttention", "window_size": 32, "num_heads": 3, "causal": True},
    "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2}

MODELS = {
    "based": ("gated convolutions, linear attention of a Taylor series, attention with a window; a twin of ours", BASED, 100),
    "based_wide": ("heads of 40 channels with 16 features, half of each head rotates, other widths; a twin of ours",
                   BASED | {"n_embd": 80, "n_head": 2, "rotary_emb_fraction": 0.5, "alt_mixer_layers": [0, 2],
                            "alt_mixer_2_layers": [3], "mixer": BASED["mixer"] | {"expand_proj": 2, "kernel_size": 4},
                            "alt_mixer": BASED["alt_mixer"] | {
                                "num_heads": 2, "feature_dim": 16,
                                "feature_map": BASED["alt_mixer"]["feature_map"] | {"input_dim": 16}},
                            "alt_mixer_2": BASED["alt_mixer_2"] | {"num_heads": 2}}, 60),
}


def kind(c, i):
    return "window" if i in c["alt_mixer_2_layers"] else "recall" if i in c["alt_mixer_layers"] else "convolution"


def rows_of(c):
    return -(-c["vocab_size"] // c["pad_vocab_size_multiple"]) * c["pad_vocab_size_multiple"]


def shapes_of(c):
    dim, ffn = c["n_embd"], c["n_inner"]
    out = {"transformer.embeddings.word_embeddings.weight": (rows_of(c), dim), "transformer.ln_f.weight": (dim,)}
    for i in range(c["n_layer"]):
        layer = {"norm1.weight": (dim,), "norm2.weight": (dim,), "mlp.fc1.weight": (2 * ffn, dim), "mlp.fc2.weight": (dim, ffn)}
        if kind(c, i) == "window":
            layer |= {"mixer.Wqkv.weight": (3 * dim, dim), "mixer.out_proj.weight": (dim, dim)}
        elif kind(c, i) == "recall":
            made = c["alt_mixer"]["num_heads"] * c["alt_mixer"]["feature_dim"]
            layer |= {"mixer.proj_q.weight": (made, dim), "mixer.proj_k.weight": (made, dim), "mixer.proj_v.weight": (dim, dim),
                      "mixer.out_proj.weight": (dim, dim)}
        else:
            inner = c["mixer"]["expand_proj"] * dim // 2
            layer |= {"mixer.in_proj.weight": (2 * inner, dim), "mixer.in_proj.bias": (2 * inner,),
                      "mixer.conv.conv.weight": (inner, 1, c["mixer"].get("kernel_size", 3)),
                      "mixer.out_proj.weight": (dim, inner), "mixer.out_proj.bias": (dim,)}
        out |= {f"transformer.layers.{i}.{n}": s for n, s in layer.items()}
    return out


def random_number(name, shape, rng):
    x = rng.standard_normal(shape)
    if name.endswith(".bias"):
        return 0.2 * x
    if len(shape) == 1:
        return 1 + 0.25 * x
    return (0.5 if "embeddings" in name else 1.5 / np.sqrt(shape[-1])) * x


def weights_of(name):
    c, rng = MODELS[name][1], rng_for(name)
    return {n: random_number(n, s, rng).astype(np.float32) for n, s in sorted(shapes_of(c).items())}


def silu(x):
    return x / (1 + np.exp(-x))


def taylor(x):
    """The features of the authors' TaylorExp: all products of two channels, (heads, 1 + d + d * d)."""
    d = x.shape[1]
    pairs = (x[:, :, None] * x[:, None]).reshape(len(x), -1)
    return np.concatenate([np.ones_like(x[:, :1]), x / d ** 0.25, pairs / np.sqrt(2) / np.sqrt(d)], axis=1)


class Twin:
    """The model, a token at a time."""

    def __init__(self, config, weights, dtype):
        self.c, self.w = config, {k: v.astype(dtype) for k, v in weights.items()}
        self.states = [{"cells": [], "last": [], "kv": 0, "k": 0} for _ in range(config["n_layer"])]

    def normed(self, x, weight):
        return x / np.sqrt((x * x).mean() + self.c["layer_norm_epsilon"]) * weight

    def rotated(self, x, position):  # (heads, channels): the first channels of each head, as two halves
        half = int(x.shape[1] * self.c["rotary_emb_fraction"]) // 2
        angle = position * 10000.0 ** (-np.arange(half) / half)
        a, b = x[:, :half], x[:, half:2 * half]
        cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[:, 2 * half:]], axis=1)

    def window(self, w, state, x):
        heads = self.c["n_head"]
        q, k, v = (w["Wqkv.weight"] @ x).reshape(3, heads, -1)
        position = len(state["cells"])
        state["cells"].append((self.rotated(k, position), v))
        seen = state["cells"][-1 - self.c["alt_mixer_2"]["window_size"] // 2:]
        keys, values = (np.stack([cell[i] for cell in seen]) for i in (0, 1))
        scores = np.einsum("thd,hd->ht", keys, self.rotated(q, position)) / np.sqrt(q.shape[1])
        part = np.exp(scores - scores.max(axis=1, keepdims=True))
        y = np.einsum("ht,thd->hd", part / part.sum(axis=1, keepdims=True), values)
        return w["out_proj.weight"] @ y.reshape(-1)

    def recall(self, w, state, x):
        heads = self.c["alt_mixer"]["num_heads"]
        q, k, v = ((w[f"proj_{p}.weight"] @ x).reshape(heads, -1) for p in "qkv")
        q, k = taylor(q), taylor(k)
        state["kv"] = state["kv"] + k[:, :, None] * v[:, None]
        state["k"] = state["k"] + k
        y = np.einsum("hf,hfd->hd", q, state["kv"]) / ((q * state["k"]).sum(axis=1, keepdims=True) + 1e-12)
        return w["out_proj.weight"] @ y.reshape(-1)

    def convolution(self, w, state, x):
        u, gate = np.split(w["in_proj.weight"] @ x + w["in_proj.bias"], 2)
        taps = w["conv.conv.weight"][:, 0]
        state["last"] = (state["last"] + [u])[-taps.shape[1]:]
        y = sum(taps[:, -1 - ago] * past for ago, past in enumerate(reversed(state["last"])))
        return w["out_proj.weight"] @ (silu(y) * gate) + w["out_proj.bias"]

    def step(self, token):
        table = self.w["transformer.embeddings.word_embeddings.weight"]
        x = table[token]
        for i, state in enumerate(self.states):
            stem = f"transformer.layers.{i}."
            w = {k[len(stem):]: v for k, v in self.w.items() if k.startswith(stem)}
            mixer = {k.removeprefix("mixer."): v for k, v in w.items()}
            x = x + getattr(self, kind(self.c, i))(mixer, state, self.normed(x, w["norm1.weight"]))
            up, gate = np.split(w["mlp.fc1.weight"] @ self.normed(x, w["norm2.weight"]), 2)
            x = x + w["mlp.fc2.weight"] @ (up * silu(gate))
        return table @ self.normed(x, self.w["transformer.ln_f.weight"])


def logits(name, weights, tokens, dtype=np.float64):
    twin = Twin(MODELS[name][1], weights, dtype)
    return np.stack([twin.step(t) for t in tokens])


def folder_weights(name, weights):
    return weights


def write_gguf(path, name, weights):
    """llama.cpp does not have it."""

"""RWKV 6 and 7, computed by a twin of ours, because transformers has neither: written from the papers (arXiv 2404.05892 and
2503.14456), one token after another, in float64. Folders of RWKV 7 have the names of flash-linear-attention; RWKV 6 is
written as GGUF only.
"""

import gguf
import numpy as np

from golden_weights import rng_for

SIZES = {"hidden_size": 128, "num_hidden_layers": 3, "vocab_size": 96, "intermediate_size": 96, "head_dim": 64,
         "norm_eps": 1e-5, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}

RWKV7 = SIZES | {
    "architectures": ["RWKV7ForCausalLM"], "model_type": "rwkv7", "hidden_act": "sqrelu", "norm_first": True,
    "norm_bias": True, "decay_low_rank_dim": 16, "a_low_rank_dim": 16, "v_low_rank_dim": 8, "gate_low_rank_dim": 24}

RWKV7_SMALL = RWKV7 | {"hidden_size": 32, "head_dim": 16, "norm_eps": 1e-3, "num_hidden_layers": 2}

RWKV6 = SIZES | {"model_type": "rwkv6", "mix_rank": 16, "decay_rank": 16, "rescale_every": 2}

MODELS = {
    "rwkv6": ("RWKV 6, halved after every second layer; a twin of ours", RWKV6, 100),
    "rwkv7": ("RWKV 7: a state that forgets by channel and replaces; a twin of ours", RWKV7, 100),
    "rwkv7_small": ("heads of 16 channels, whose norm has 16 times the epsilon of the others; a twin of ours", RWKV7_SMALL, 60),
}


def shapes_of(c):
    """Our short names, all matrices (outputs, inputs)."""
    dim, ffn, heads = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["head_dim"]
    out = {"emb": (c["vocab_size"], dim), "head": (c["vocab_size"], dim)}
    for norm in ("ln0", "ln_out"):
        out[norm + ".w"] = out[norm + ".b"] = (dim,)
    for i in range(c["num_hidden_layers"]):
        layer = {n + part: (dim,) for n in ("ln1", "ln2", "ln_x") for part in (".w", ".b")}
        layer |= {"r": (dim, dim), "k": (dim, dim), "v": (dim, dim), "o": (dim, dim), "ffn_k": (ffn, dim), "ffn_v": (dim, ffn),
                  "ffn_x_k": (dim,), "u": (heads, c["head_dim"])}
        if c["model_type"] == "rwkv7":
            layer |= {"x_" + x: (dim,) for x in "rwkvag"} | {"k_k": (dim,), "k_a": (dim,)}
            ranks = {"w": "decay", "a": "a", "v": "v", "g": "gate"}
            for x, rank in ranks.items():
                if x != "v" or i > 0:
                    rank = c[rank + "_low_rank_dim"]
                    layer |= {x + "1": (rank, dim), x + "2": (dim, rank)} | ({} if x == "g" else {x + "0": (dim,)})
        else:
            layer |= {"x_x": (dim,), "g": (dim, dim), "ffn_x_r": (dim,), "ffn_r": (dim, dim), "w0": (dim,),
                      "w1": (c["decay_rank"], dim), "w2": (dim, c["decay_rank"])}
            for x in "wkvrg":
                layer |= {"x_" + x: (dim,), f"m1_{x}": (c["mix_rank"], dim), f"m2_{x}": (dim, c["mix_rank"])}
        out |= {f"{i}.{n}": s for n, s in layer.items()}
    return out


def random_number(name, shape, rng):
    x, part = rng.standard_normal(shape), name.split(".", 1)[-1]
    if part.endswith(".b") or part in ("a0", "v0"):
        return 0.2 * x
    if part.endswith(".w") or part == "k_k":
        return 1 + 0.25 * x
    if part == "w0":  # so that a state remembers some ten tokens
        return x - 2
    if part in ("u", "k_a") or len(shape) == 1:
        return 0.5 + 0.3 * x
    return (2.5 if name == "head" else 0.5 if name == "emb" else 1.2) / np.sqrt(1 if name == "emb" else shape[-1]) * x


def weights_of(name):
    c, rng = MODELS[name][1], rng_for(name)
    return {n: random_number(n, s, rng).astype(np.float32) for n, s in sorted(shapes_of(c).items())}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def norm(x, w, b, eps, groups=1):
    x = x.reshape(groups, -1)
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + eps)
    return x.reshape(-1) * w + b


class Twin:
    """The model, a token at a time."""

    def __init__(self, config, weights, dtype=np.float64):
        self.c = config
        self.w = {k: v.astype(dtype) for k, v in weights.items()}
        self.heads, n = config["hidden_size"] // config["head_dim"], config["num_hidden_layers"]
        self.last = np.zeros((n, 2, config["hidden_size"]), dtype)
        self.state = np.zeros((n, self.heads, config["head_dim"], config["head_dim"]), dtype)  # (values, keys)

    def normed(self, x, name, eps=None, groups=1):
        return norm(x, self.w[name + ".w"], self.w[name + ".b"], eps or self.c["norm_eps"], groups)

    def by_head(self, x):
        return x.reshape(self.heads, -1)

    def shifted(self, i, part, x):
        before = self.last[i, part].copy() - x
        self.last[i, part] = x
        return before

    def time_mix_6(self, i, x):
        w = {k.split(".", 1)[1]: v for k, v in self.w.items() if k.startswith(f"{i}.")}
        before = self.shifted(i, 0, x)
        all_parts = x + before * w["x_x"]
        mixed = {p: x + before * (w["x_" + p] + w["m2_" + p] @ np.tanh(w["m1_" + p] @ all_parts)) for p in "wkvrg"}
        r, k, v = (self.by_head(w[p] @ mixed[p]) for p in "rkv")
        gate = w["g"] @ mixed["g"]
        decay = self.by_head(np.exp(-np.exp(w["w0"] + w["w2"] @ np.tanh(w["w1"] @ mixed["w"]))))
        added = v[:, :, None] * k[:, None]
        y = np.einsum("hvk,hk->hv", self.state[i] + added * w["u"][:, None], r)
        self.state[i] = self.state[i] * decay[:, None] + added
        y = self.normed(y.reshape(-1), f"{i}.ln_x", self.c["head_dim"] * self.c["norm_eps"], self.heads)
        return w["o"] @ (y * gate * sigmoid(gate))

    def time_mix_7(self, i, x):
        w = {k.split(".", 1)[1]: v for k, v in self.w.items() if k.startswith(f"{i}.")}
        before = self.shifted(i, 0, x)
        mixed = {p: x + before * w["x_" + p] for p in "rwkvag"}
        r, k, v = (w[p] @ mixed[p] for p in "rkv")
        decay = np.exp(-np.exp(-0.5) * sigmoid(w["w0"] + w["w2"] @ np.tanh(w["w1"] @ mixed["w"])))
        if i == 0:
            self.first = v
        else:
            v = v + (self.first - v) * sigmoid(w["v0"] + w["v2"] @ (w["v1"] @ mixed["v"]))
        rate = sigmoid(w["a0"] + w["a2"] @ (w["a1"] @ mixed["a"]))
        gate = w["g2"] @ sigmoid(w["g1"] @ mixed["g"])
        kk = self.by_head(k * w["k_k"])
        kk = kk / np.linalg.norm(kk, axis=1, keepdims=True)
        k = k * (1 + (rate - 1) * w["k_a"])
        r, k, v, decay, rate = (self.by_head(z) for z in (r, k, v, decay, rate))
        removed = np.einsum("hvk,hk->hv", self.state[i], kk)
        self.state[i] = self.state[i] * decay[:, None] - removed[:, :, None] * (kk * rate)[:, None] + v[:, :, None] * k[:, None]
        y = self.normed(np.einsum("hvk,hk->hv", self.state[i], r).reshape(-1), f"{i}.ln_x", self.c["head_dim"] * self.c["norm_eps"], self.heads)
        y = y + ((r * k * w["u"]).sum(axis=1, keepdims=True) * v).reshape(-1)
        return w["o"] @ (y * gate)

    def channel_mix(self, i, x):
        before = self.shifted(i, 1, x)
        inner = np.maximum(self.w[f"{i}.ffn_k"] @ (x + before * self.w[f"{i}.ffn_x_k"]), 0) ** 2
        y = self.w[f"{i}.ffn_v"] @ inner
        if self.c["model_type"] == "rwkv7":
            return y
        return sigmoid(self.w[f"{i}.ffn_r"] @ (x + before * self.w[f"{i}.ffn_x_r"])) * y

    def step(self, token):
        x = self.normed(self.w["emb"][token], "ln0")
        for i in range(self.c["num_hidden_layers"]):
            mix = self.time_mix_7 if self.c["model_type"] == "rwkv7" else self.time_mix_6
            x = x + mix(i, self.normed(x, f"{i}.ln1"))
            x = x + self.channel_mix(i, self.normed(x, f"{i}.ln2"))
            if (period := self.c.get("rescale_every")) and (i + 1) % period == 0:
                x = x / 2
        return self.w["head"] @ self.normed(x, "ln_out")


def logits(name, weights, tokens, dtype=np.float64):
    twin = Twin(MODELS[name][1], weights, dtype)
    return np.stack([twin.step(t) for t in tokens])


TOP = {"emb": "model.embeddings.weight", "head": "lm_head.weight", "ln0.w": "model.layers.0.pre_norm.weight",
       "ln0.b": "model.layers.0.pre_norm.bias", "ln_out.w": "model.norm.weight", "ln_out.b": "model.norm.bias"}
LAYER = {"ln1": "attn_norm", "ln2": "ffn_norm", "ln_x": "attn.g_norm", "r": "attn.r_proj.weight", "k": "attn.k_proj.weight",
         "v": "attn.v_proj.weight", "o": "attn.o_proj.weight", "ffn_k": "ffn.key.weight", "ffn_v": "ffn.value.weight",
         "ffn_x_k": "ffn.x_k", "u": "attn.r_k", "k_k": "attn.k_k", "k_a": "attn.k_a"}
LOW_RANK = {"0": "lora.2.bias", "1": "lora.0.weight", "2": "lora.2.weight"}


def folder_name(name):
    if name in TOP:
        return TOP[name]
    i, part = name.split(".", 1)
    if part in LAYER:
        own = LAYER[part]
    elif part.endswith((".w", ".b")):
        own = LAYER[part[:-2]] + (".weight" if part[-1] == "w" else ".bias")
    elif part.startswith("x_"):
        own = "attn." + part
    else:
        own = f"attn.{part[0]}_lora.{LOW_RANK[part[1]]}"
    return f"model.layers.{i}.{own}"


def folder_weights(name, weights):
    """None: there is no folder."""
    if MODELS[name][1]["model_type"] == "rwkv6":
        return None
    return {folder_name(k): w[None, None] if ".x_" in k else w for k, w in weights.items()}


GGUF_TOP = {"emb": "token_embd.weight", "head": "output.weight", "ln0.w": "token_embd_norm.weight",
            "ln0.b": "token_embd_norm.bias", "ln_out.w": "output_norm.weight", "ln_out.b": "output_norm.bias"}
GGUF_LAYER = {"ln1": "attn_norm", "ln2": "attn_norm_2", "ln_x": "time_mix_ln", "r": "time_mix_receptance", "k": "time_mix_key",
              "v": "time_mix_value", "o": "time_mix_output", "g": "time_mix_gate", "ffn_k": "channel_mix_key",
              "ffn_v": "channel_mix_value", "ffn_r": "channel_mix_receptance", "ffn_x_k": "channel_mix_lerp_k",
              "ffn_x_r": "channel_mix_lerp_r", "x_x": "time_mix_lerp_x", "k_k": "time_mix_k_k", "k_a": "time_mix_k_a"}
GGUF_6 = {"u": "time_mix_first", "w0": "time_mix_decay", "w1": "time_mix_decay_w1", "w2": "time_mix_decay_w2"}


def write_gguf(path, name, weights):
    c = MODELS[name][1]
    if c["head_dim"] != 64:  # GGUF files mean the epsilon of such heads
        return
    is_7, n = c["model_type"] == "rwkv7", c["num_hidden_layers"]
    writer = gguf.GGUFWriter(path, name)
    writer.add_context_length(1048576), writer.add_embedding_length(c["hidden_size"]), writer.add_block_count(n)
    writer.add_vocab_size(c["vocab_size"]), writer.add_feed_forward_length(c["intermediate_size"]), writer.add_head_count(0)
    writer.add_layer_norm_eps(c["norm_eps"]), writer.add_wkv_head_size(c["head_dim"])
    if is_7:
        writer.add_decay_lora_rank(c["decay_low_rank_dim"]), writer.add_iclr_lora_rank(c["a_low_rank_dim"])
        writer.add_value_residual_mix_lora_rank(c["v_low_rank_dim"]), writer.add_gate_lora_rank(c["gate_low_rank_dim"])
    else:
        writer.add_rescale_every_n_layers(c["rescale_every"])
        writer.add_time_mix_extra_dim(c["mix_rank"]), writer.add_time_decay_extra_dim(c["decay_rank"])

    def put(name, w):
        writer.add_tensor(name, np.ascontiguousarray(w))

    for key, theirs in GGUF_TOP.items():
        put(theirs, weights[key])
    for i in range(n):
        w = {k.split(".", 1)[1]: v for k, v in weights.items() if k.startswith(f"{i}.")}
        parts = "rwkvag" if is_7 else "wkvrg"
        lerps = np.stack([w.pop("x_" + p) for p in parts])
        put(f"blk.{i}.time_mix_lerp_fused.weight", lerps[:, None, None])
        if is_7:
            w["u"] = w["u"].reshape(-1)
            if i == 0:  # llama.cpp wants them, and ignores them
                w |= {f"v{k}": w[f"a{k}"] for k in "012"}
        else:
            put(f"blk.{i}.time_mix_w1.weight", np.concatenate([w.pop("m1_" + p) for p in parts]))
            put(f"blk.{i}.time_mix_w2.weight", np.stack([w.pop("m2_" + p) for p in parts]))
        for part, x in w.items():
            stem, kind = (part[:-2], "bias") if part.endswith(".b") else (part.removesuffix(".w"), "weight")
            own = GGUF_LAYER.get(stem) or (GGUF_6 if not is_7 else {"u": "time_mix_r_k"}).get(stem) or f"time_mix_{stem}"
            put(f"blk.{i}.{own}.{kind}", x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

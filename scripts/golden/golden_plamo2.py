"""PLaMo 2, computed by a twin of ours, because transformers does not have it: one token after another, in float64. Written from
the description of its layers in the authors' published configs and in llama.cpp's and vLLM's readers of its files.
"""

import gguf
import numpy as np

from golden_weights import rng_for

PLAMO2 = {
    "architectures": ["Plamo2ForCausalLM"], "model_type": "plamo2", "hidden_size": 32, "num_hidden_layers": 4,
    "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size_per_head": 16, "vocab_size": 96,
    "max_position_embeddings": 2048, "attention_window_size": 2048, "full_attention_idx": None, "mamba_d_state": 24,
    "mamba_d_conv": 4, "mamba_num_heads": 6, "mamba_step": 2, "mamba_chunk_size": 64, "mamba_enabled": True,
    "rms_norm_eps": 1e-6, "linear_type": "normal", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
    "torch_dtype": "float32"}

MODELS = {
    "plamo2": ("PLaMo 2: a scan of heads with normed time steps, B and C; norms of other offsets; a twin of ours", PLAMO2, 100),
    "plamo2_window": ("a window of 20 tokens before each one, one key head, attention in the last layer only; a twin of ours",
                      PLAMO2 | {"attention_window_size": 20, "num_key_value_heads": 1, "mamba_step": 8,
                                "tie_word_embeddings": False}, 100),
}
GGUF = ("plamo2",)  # those of converters have no window


def attends(c, i):
    step, n = c["mamba_step"], c["num_hidden_layers"]
    return i == n - 1 if n <= step // 2 else i % step == step // 2


def rank(c):
    return max(64, c["hidden_size"] // 16)


def shapes_of(c):
    dim, ffn, head = c["hidden_size"], c["intermediate_size"], c["hidden_size_per_head"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    of_mamba, states = c["mamba_num_heads"], c["mamba_d_state"]
    inner = of_mamba * head
    out = {"model.embed_tokens.weight": (c["vocab_size"], dim), "model.norm.weight": (dim,)}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (c["vocab_size"], dim)
    for i in range(c["num_hidden_layers"]):
        layer = {n + ".weight": (dim,) for n in ("pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm")}
        layer |= {"mlp.gate_up_proj.weight": (2 * ffn, dim), "mlp.down_proj.weight": (dim, ffn)}
        if attends(c, i):
            layer |= {"mixer.qkv_proj.weight": ((heads + 2 * kv) * head, dim), "mixer.o_proj.weight": (dim, heads * head),
                      "mixer.q_weight": (heads, head), "mixer.k_weight": (kv, head)}
        else:
            layer |= {"mixer.in_proj.weight": (2 * inner, dim), "mixer.conv1d.weight": (inner, 1, c["mamba_d_conv"]),
                      "mixer.bcdt_proj.weight": (rank(c) + 2 * states, inner), "mixer.dt_proj.weight": (of_mamba, rank(c)),
                      "mixer.dt_bias": (of_mamba,), "mixer.A_log": (of_mamba,), "mixer.D": (of_mamba,),
                      "mixer.dt_norm_weight": (rank(c),), "mixer.B_norm_weight": (states,), "mixer.C_norm_weight": (states,),
                      "mixer.out_proj.weight": (dim, inner)}
        out |= {f"model.layers.layers.{i}.{n}": s for n, s in layer.items()}
    return out


def random_number(name, shape, rng):
    x = rng.standard_normal(shape)
    if name.endswith(".A_log"):  # so that a state remembers some ten tokens
        return x - 2.5
    if name.endswith("dt_bias"):
        return 0.2 * x
    if name.endswith("norm.weight"):  # the model adds 1 or less to them
        return 0.25 * x + (0.5 if ".post_" in name else 0)
    if len(shape) == 1 or name.endswith(("q_weight", "k_weight")):
        return 1 + 0.25 * x
    return (0.5 if "embed" in name else 1.5 / np.sqrt(shape[-1])) * x


def weights_of(name):
    c, rng = MODELS[name][1], rng_for(name)
    return {n: random_number(n, s, rng).astype(np.float32) for n, s in sorted(shapes_of(c).items())}


def silu(x):
    return x / (1 + np.exp(-x))


class Twin:
    """The model, a token at a time."""

    def __init__(self, config, weights, dtype):
        self.c, self.w = config, {k: v.astype(dtype) for k, v in weights.items()}
        self.states = [{"cells": [], "conv": 0, "state": 0} for _ in range(config["num_hidden_layers"])]

    def normed(self, x, weight):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.c["rms_norm_eps"]) * weight

    def rotated(self, x, position):  # (heads, channels), two halves
        half = x.shape[1] // 2
        angle = position * 10000.0 ** (-np.arange(half) / half)
        a, b = x[:, :half], x[:, half:]
        cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)

    def attention(self, w, state, x):
        heads, kv, head = self.c["num_attention_heads"], self.c["num_key_value_heads"], self.c["hidden_size_per_head"]
        q, k, v = np.split((w["qkv_proj.weight"] @ x).reshape(-1, head), [heads, heads + kv])
        position = len(state["cells"])
        k = self.rotated(self.normed(k, w["k_weight"]), position)
        q = self.rotated(self.normed(q, w["q_weight"]), position)
        state["cells"].append((k, v))
        seen = state["cells"][-1 - self.c["attention_window_size"]:]
        keys, values = (np.stack([cell[i] for cell in seen]) for i in (0, 1))
        out = []
        for h in range(heads):
            score = keys[:, h // (heads // kv)] @ q[h] / np.sqrt(head)
            part = np.exp(score - score.max())
            out.append(part / part.sum() @ values[:, h // (heads // kv)])
        return w["o_proj.weight"] @ np.concatenate(out)

    def mamba(self, w, state, x):
        heads, head, n, taps = (self.c[k] for k in ("mamba_num_heads", "hidden_size_per_head", "mamba_d_state", "mamba_d_conv"))
        z, x = np.split((w["in_proj.weight"] @ x).reshape(heads, 2 * head), 2, axis=1)
        if np.ndim(state["conv"]) == 0:
            state["conv"], state["state"] = np.zeros((heads * head, taps), x.dtype), np.zeros((heads, head, n), x.dtype)
        state["conv"] = np.concatenate([state["conv"][:, 1:], x.reshape(-1, 1)], axis=1)
        x = silu((state["conv"] * w["conv1d.weight"][:, 0]).sum(axis=1))
        b, c, dt = np.split(w["bcdt_proj.weight"] @ x, [n, 2 * n])
        b, c, dt = (self.normed(y, w[f"{k}_norm_weight"]) for y, k in ((b, "B"), (c, "C"), (dt, "dt")))
        dt = np.log1p(np.exp(w["dt_proj.weight"] @ dt + w["dt_bias"]))
        x = x.reshape(heads, head)
        decay = np.exp(dt * -np.exp(w["A_log"]))
        state["state"] = state["state"] * decay[:, None, None] + (dt[:, None] * x)[:, :, None] * b
        y = state["state"] @ c + w["D"][:, None] * x
        return w["out_proj.weight"] @ (silu(z) * y).reshape(-1)

    def step(self, token):
        x = self.w["model.embed_tokens.weight"][token]
        for i, state in enumerate(self.states):
            stem = f"model.layers.layers.{i}."
            w = {k[len(stem):]: v for k, v in self.w.items() if k.startswith(stem)}
            mixer = {k.removeprefix("mixer."): v for k, v in w.items()}
            n = self.normed(x, 1 + w["pre_mixer_norm.weight"])
            y = (self.attention if attends(self.c, i) else self.mamba)(mixer, state, n)
            x = x + self.normed(y, 0.2 + w["post_mixer_norm.weight"])
            gate, up = np.split(w["mlp.gate_up_proj.weight"] @ self.normed(x, 1 + w["pre_mlp_norm.weight"]), 2)
            y = w["mlp.down_proj.weight"] @ (silu(gate) * up)
            x = x + self.normed(y, 5 ** -1.5 + w["post_mlp_norm.weight"])
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return head @ self.normed(x, 1 + self.w["model.norm.weight"])


def logits(name, weights, tokens, dtype=np.float64):
    twin = Twin(MODELS[name][1], weights, dtype)
    return np.stack([twin.step(t) for t in tokens])


def folder_weights(name, weights):
    return weights


def write_gguf(path, name, weights):
    if name not in GGUF:
        return
    c = MODELS[name][1]
    n, head = c["num_hidden_layers"], c["hidden_size_per_head"]
    writer = gguf.GGUFWriter(path, "plamo2")
    writer.add_context_length(c["max_position_embeddings"]), writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(n), writer.add_vocab_size(c["vocab_size"]), writer.add_feed_forward_length(c["intermediate_size"])
    for add, key in ((writer.add_head_count, "num_attention_heads"), (writer.add_head_count_kv, "num_key_value_heads")):
        add([c[key] if attends(c, i) else 0 for i in range(n)])
    writer.add_key_length(head), writer.add_value_length(head), writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_freq_base(10000.0)
    writer.add_ssm_conv_kernel(c["mamba_d_conv"]), writer.add_ssm_state_size(c["mamba_d_state"])
    writer.add_ssm_inner_size(c["mamba_num_heads"] * head), writer.add_ssm_time_step_rank(c["mamba_num_heads"])
    writer.add_ssm_group_count(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.PLAMO2, n)
    offsets = {".post_mixer_norm.weight": 1 / 5, ".post_mlp_norm.weight": 5 ** -1.5, "norm.weight": 1}
    for theirs, w in weights.items():
        w = w + np.float32(next((add for end, add in offsets.items() if theirs.endswith(end)), 0))
        w = -np.exp(w) if theirs.endswith(".A_log") else w[:, 0] if "conv1d" in theirs else w
        for end, own in ((".dt_bias", ".dt_proj.bias"), ("_norm_weight", "_norm.weight"), ("q_weight", "q.weight"),
                         ("k_weight", "k.weight")):
            theirs = theirs.removesuffix(end) + own if theirs.endswith(end) else theirs
        writer.add_tensor(names.get_name(theirs, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

#!/usr/bin/env python3
"""Golden logits of the layers for one more token of Qwen 3.5 and Qwen 3 Next: random ones over tiny random models.

    python3 scripts/golden/golden_mtp.py tests/golden

The models are those of tests/golden/models, which golden_models.py makes. The layer reads the hidden rows before the model's
head; they follow from the logits that transformers computed, because the head has more rows than columns. The layer itself is
written here in float64, after the description of its tensors; transformers has no class for it. Each folder has config.json
and only the layer's tensors.

The first logits are for the last tokens of the text. The others are for draft tokens: each is the top-1 token, and its input
row is the layer's own output. Needs numpy. tests/golden/README.md describes the files.
"""

import argparse
import json
import struct
import zlib
from pathlib import Path

import numpy as np

TOKENS, POSITIONS, GUESSES = 24, 8, 4  # of the text; its last tokens; draft tokens after it
# name of the model: (folder of the layer, the tested features, whether its experts are stored one by one)
LAYERS = {
    "qwen35": ("qwen35", "a dense layer of Qwen 3.5", False),
    "qwen35_moe": ("qwen35_moe", "a layer of Qwen 3.5 whose experts are in one tensor of each kind", False),
    "qwen3next": ("qwen3next", "a layer of Qwen 3 Next, whose experts are stored one by one", True),
}


def read_safetensors(path):
    """float32 tensors only."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8:8 + size]), data[8 + size:]
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"]).astype(np.float64)
            for name, t in header.items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, w in tensors.items():
        raw = w.astype("<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": list(w.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def layer_shapes(c, one_by_one):
    """The tensors of the layer, without the prefix "mtp."."""
    dim, head, heads, kv = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    shapes = {"fc.weight": (dim, 2 * dim), "pre_fc_norm_embedding.weight": (dim,), "pre_fc_norm_hidden.weight": (dim,),
              "norm.weight": (dim,)}
    layer = {"input_layernorm.weight": (dim,), "post_attention_layernorm.weight": (dim,),
             "self_attn.q_proj.weight": (2 * heads * head, dim), "self_attn.k_proj.weight": (kv * head, dim),
             "self_attn.v_proj.weight": (kv * head, dim), "self_attn.o_proj.weight": (dim, heads * head),
             "self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    gated = lambda stem, n: {f"{stem}.gate_proj.weight": (n, dim), f"{stem}.up_proj.weight": (n, dim),
                             f"{stem}.down_proj.weight": (dim, n)}
    if experts := c.get("num_experts"):
        width = c["moe_intermediate_size"]
        layer |= {"mlp.gate.weight": (experts, dim), "mlp.shared_expert_gate.weight": (1, dim)}
        layer |= gated("mlp.shared_expert", c["shared_expert_intermediate_size"])
        if one_by_one:
            for i in range(experts):
                layer |= gated(f"mlp.experts.{i}", width)
        else:
            layer |= {"mlp.experts.gate_up_proj": (experts, 2 * width, dim), "mlp.experts.down_proj": (experts, dim, width)}
    else:
        layer |= gated("mlp", c["intermediate_size"])
    return shapes | {f"layers.0.{name}": shape for name, shape in layer.items()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def soft_max(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Layer:
    def __init__(self, c, w, table):
        self.c, self.w, self.table = c, w, table

    def norm(self, x, name):  # the weight of a norm is stored as its difference from 1
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * (1 + self.w[name + ".weight"])

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T

    def rotated(self, x):  # (tokens, heads, channels): the first channels of each head rotate, as two halves
        rope = self.c["rope_parameters"]
        n = int(x.shape[-1] * rope["partial_rotary_factor"])
        angle = np.arange(len(x))[:, None] * rope["rope_theta"] ** (-np.arange(0, n, 2) / n)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :n // 2], x[..., n // 2:n]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., n:]], -1)

    def attention(self, x):
        n, head, heads = len(x), self.c["head_dim"], self.c["num_attention_heads"]
        q, gate = np.split(self.linear(x, "layers.0.self_attn.q_proj").reshape(n, heads, 2 * head), 2, axis=-1)
        k = self.linear(x, "layers.0.self_attn.k_proj").reshape(n, -1, head)
        v = self.linear(x, "layers.0.self_attn.v_proj").reshape(n, -1, head)
        q, k = (self.rotated(self.norm(y, f"layers.0.self_attn.{name}_norm")) for y, name in ((q, "q"), (k, "k")))
        k, v = (np.repeat(y, heads // y.shape[1], axis=1) for y in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / head ** 0.5
        scores[:, ~np.tri(n, dtype=bool)] = -np.inf
        y = np.einsum("hqk,khd->qhd", soft_max(scores), v) * sigmoid(gate)
        return self.linear(y.reshape(n, -1), "layers.0.self_attn.o_proj")

    def gated(self, x, gate, up, down):
        g = x @ gate.T
        return (g * sigmoid(g) * (x @ up.T)) @ down.T

    def expert(self, i):
        stem = "layers.0.mlp.experts."
        if stem + "down_proj" not in self.w:
            return [self.w[f"{stem}{i}.{kind}_proj.weight"] for kind in ("gate", "up", "down")]
        return [*np.split(self.w[stem + "gate_up_proj"][i], 2), self.w[stem + "down_proj"][i]]

    def named(self, x, stem):
        return self.gated(x, *(self.w[f"{stem}.{kind}_proj.weight"] for kind in ("gate", "up", "down")))

    def feed(self, x):
        if "num_experts" not in self.c:
            return self.named(x, "layers.0.mlp")
        scores = soft_max(self.linear(x, "layers.0.mlp.gate"))
        y = sigmoid(self.linear(x, "layers.0.mlp.shared_expert_gate")) * self.named(x, "layers.0.mlp.shared_expert")
        for t, row in enumerate(scores):
            best = np.argsort(-row)[:self.c["num_experts_per_tok"]]
            for i in best:
                y[t] += row[i] / row[best].sum() * self.gated(x[t], *self.expert(i))
        return y

    def __call__(self, tokens, rows):
        both = [self.norm(self.table[tokens], "pre_fc_norm_embedding"), self.norm(rows, "pre_fc_norm_hidden")]
        x = self.linear(np.concatenate(both, -1), "fc")
        x = x + self.attention(self.norm(x, "layers.0.input_layernorm"))
        x = x + self.feed(self.norm(x, "layers.0.post_attention_layernorm"))
        return self.norm(x, "norm")


def write_layer(out, model, folder, what, one_by_one):
    c = json.loads((out / "models" / model / "config.json").read_text())
    target = read_safetensors(out / "models" / model / "model.safetensors")
    text = json.loads((out / "models" / model / "golden.json").read_text())["tokens"][:TOKENS]
    table = target["model.embed_tokens.weight"]
    head = target.get("lm_head.weight", table)
    logits = np.fromfile(out / "models" / model / "logits.f32", "<f4").reshape(-1, c["vocab_size"])[:len(text) - 1]
    rows = np.linalg.lstsq(head, logits.T.astype(np.float64), rcond=None)[0].T
    random = np.random.default_rng(zlib.crc32(folder.encode()))
    weights = {name: random.normal(size=shape) / (4 if len(shape) == 1 else shape[-1] ** 0.5)
               for name, shape in layer_shapes(c, one_by_one).items()}
    weights = {name: w.astype("<f2").astype(np.float64) for name, w in weights.items()}
    layer, tokens, got = Layer(c, weights, table), list(text), []
    for _ in range(1 + GUESSES):
        made = layer(tokens[1:], rows)
        got.append(made[-1 if got else -POSITIONS:] @ head.T)
        tokens.append(int(got[-1][-1].argmax()))
        rows = np.concatenate([rows, made[-1:]])
    folder = out / "heads" / folder
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", {"mtp." + name: w for name, w in weights.items()})
    if model != "qwen3next":  # whose config.json does not have the key
        c["mtp_num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")
    all_logits = np.concatenate(got)
    all_logits.astype("<f4").tofile(folder / "logits.f32")
    told = {"what": what, "target": model, "tokens": text, "positions": POSITIONS, "guesses": tokens[len(text):-1],
            "max_abs": float(abs(all_logits).max())}
    (folder / "golden.json").write_text(json.dumps(told, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="tests/golden")
    out = parser.parse_args().out
    for model, (folder, what, one_by_one) in LAYERS.items():
        write_layer(out, model, folder, what, one_by_one)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Golden logits of EAGLE heads: random ones over a tiny random model of tests/golden/models.

    python3 scripts/golden_eagle.py tests/golden

The rows are what transformers' model gives out in front of its lm_head, in float64. A head's layer is transformers' too, without the
norms that an EAGLE head lacks; what is in front of it is computed here. First come the logits behind the last tokens of the text, then
those of a few guesses, each of which is the likeliest token and goes in with the row that the head made itself. Needs torch,
transformers and safetensors. What each file holds is told in tests/golden/README.md.
"""

import argparse
import json
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

torch.set_num_threads(1)

TARGET = "llama_gqa_untied"
POSITIONS, GUESSES = 8, 4  # the last of the text; behind it
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
          "vocab_size": 128, "max_position_embeddings": 128, "tie_word_embeddings": False}
HEADS = {
    # what it is there to catch, config.json, format, whether fc has a bias, whether the embedding comes along
    "eagle": ("as published: a bias, and the model's embedding again",
              {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 80,
               "rms_norm_eps": 1e-5, "rope_theta": 10000.0}, torch.float16, True, True),
    "eagle_bf16": ("two layers with heads of another size, and a norm in front of the second; named as newer files are",
                   {"architectures": ["EagleLlamaForCausalLM"], "model_type": "eagle", "num_hidden_layers": 2,
                    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 32,
                    "rms_norm_eps": 1e-6, "rope_theta": 500000.0}, torch.bfloat16, False, False),
}


class Rows(torch.nn.Module):
    """The layers of a head over rows that are made of two already."""

    def __init__(self, config):
        super().__init__()
        known = transformers.LlamaConfig(**{k: v for k, v in config.items() if k not in ("architectures", "model_type")},
                                         attn_implementation="eager")
        self.model = transformers.LlamaModel(known)
        self.model.norm = self.model.layers[0].input_layernorm = torch.nn.Identity()

    def forward(self, x):
        return self.model(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]


def random_head(name, config, dtype, bias):
    torch.manual_seed(zlib.crc32(name.encode()))
    rows, dim = Rows(config), config["hidden_size"]
    weights = {"fc.weight": torch.randn(dim, 2 * dim) / dim**0.5}
    if bias:
        weights["fc.bias"] = torch.randn(dim)
    for key, w in rows.model.named_parameters():
        if "embed_tokens" not in key:
            weights[key] = 1 + torch.randn(w.shape) / 4 if w.ndim == 1 else torch.randn(w.shape) / w.shape[1] ** 0.5
    weights = {key: w.to(dtype) for key, w in weights.items()}
    rows.model.load_state_dict({k: w for k, w in weights.items() if not k.startswith("fc.")}, strict=False)
    return weights, rows.double().eval()


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="tests/golden")
    out = parser.parse_args().out
    target = out / "models" / TARGET
    tokens = json.loads((target / "golden.json").read_text())["tokens"]
    model = transformers.AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager").double().eval()
    with torch.no_grad():
        hidden = model.model(torch.tensor([tokens])).last_hidden_state[0]
        table = model.model.embed_tokens.weight
        for name, (what, own, dtype, bias, embedding) in HEADS.items():
            folder = out / "heads" / name
            folder.mkdir(parents=True, exist_ok=True)
            config = CONFIG | own
            weights, rows = random_head(name, config, dtype, bias)
            b = weights["fc.bias"].double() if bias else 0
            text, given, logits = list(tokens), hidden[:-1], []
            for _ in range(1 + GUESSES):
                pairs = torch.cat((table[text[1:]], given), dim=1)
                made = rows(pairs @ weights["fc.weight"].double().T + b)
                logits.append(model.lm_head(made[-1 if logits else -POSITIONS:]))
                text.append(int(logits[-1][-1].argmax()))
                given = torch.cat((given, made[-1:]))
            logits = torch.cat(logits)
            if embedding:
                weights["embed_tokens.weight"] = table.to(dtype)
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
            write_json(folder / "config.json", config)
            logits.float().numpy().astype("<f4").tofile(folder / "logits.f32")
            write_json(folder / "golden.json", {"what": what, "target": TARGET, "positions": POSITIONS,
                                                "guesses": text[len(tokens):len(tokens) + GUESSES],
                                                "max_abs": float(logits.abs().max())})


if __name__ == "__main__":
    main()

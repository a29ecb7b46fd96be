#!/usr/bin/env python3
"""Golden logits of EAGLE heads and of a next-token layer (MTP): random ones over tiny random models.

    python3 scripts/golden/golden_eagle.py tests/golden

The input rows are the hidden states of transformers' model before its lm_head, in float64; for EAGLE-3, the inputs of three
of its layers. The layer of a head is transformers' layer without the norms that an EAGLE head does not have; for EAGLE-3 it
is transformers' attention over rows of twice the width. The rest of a head is computed here. EAGLE-3's target with seven
layers is made here too, and a model with MiMo's names and such a layer.

The first logits are for the last tokens of the text. The others are for draft tokens: each is the top-1 token, and its input
row is the head's own output. Needs torch, transformers and safetensors. tests/golden/README.md describes the files.
"""

import argparse
import copy
import json
import zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen2 import modeling_qwen2 as qwen2

torch.set_num_threads(1)

TARGET = "llama_gqa_untied"
POSITIONS, GUESSES = 8, 4  # the last tokens of the text; draft tokens after it
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
          "vocab_size": 128, "max_position_embeddings": 128, "tie_word_embeddings": False}
HEADS = {
    # name: (the tested features, config.json, format, fc has a bias, the folder has the embedding)
    "eagle": ("as published: a bias, and the model's embedding again",
              {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 80,
               "rms_norm_eps": 1e-5, "rope_theta": 10000.0}, torch.float16, True, True),
    "eagle_bf16": ("two layers with heads of another size, and a norm in front of the second; named as newer files are",
                   {"architectures": ["EagleLlamaForCausalLM"], "model_type": "eagle", "num_hidden_layers": 2,
                    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 32,
                    "rms_norm_eps": 1e-6, "rope_theta": 500000.0}, torch.bfloat16, False, False),
}


TARGET3 = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 7, "num_attention_heads": 2,
           "num_key_value_heads": 1, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
           "tie_word_embeddings": False}
TOKENS3 = 24
HEAD3 = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
         "vocab_size": 96, "draft_vocab_size": 40, "max_position_embeddings": 128, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40, "rms_norm_eps": 1e-6,
         "rope_theta": 500000.0, "tie_word_embeddings": False}
MIMO = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 640000.0,
        "hidden_act": "silu", "tie_word_embeddings": False}


def known_to_transformers(config):
    return transformers.LlamaConfig(**{k: v for k, v in config.items() if k not in ("architectures", "model_type")},
                                    attn_implementation="eager")


def random_values(module):
    for w in module.parameters():
        w.data = (1 + torch.randn(w.shape) / 4 if w.ndim == 1 else torch.randn(w.shape) / w.shape[1] ** 0.5).half().float()
    return module


class Layer3(torch.nn.Module):
    """EAGLE-3's layer, with its authors' names."""

    def __init__(self, config):
        super().__init__()
        known, dim = known_to_transformers(config), config["hidden_size"]
        self.self_attn, self.mlp = llama.LlamaAttention(known, 0), llama.LlamaMLP(known)
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(self.self_attn, name, torch.nn.Linear(2 * dim, getattr(self.self_attn, name).out_features, bias=False))
        for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
            setattr(self, name, llama.LlamaRMSNorm(dim, known.rms_norm_eps))
        self.angles = llama.LlamaRotaryEmbedding(known)

    def forward(self, tokens, rows):
        n = len(rows)
        both = torch.cat((self.input_layernorm(tokens), self.hidden_norm(rows)), -1)[None]
        hidden = torch.full((n, n), float("-inf"), dtype=rows.dtype).triu(1)[None, None]
        x = rows + self.self_attn(both, position_embeddings=self.angles(both, torch.arange(n)[None]), attention_mask=hidden)[0][0]
        return x + self.mlp(self.post_attention_layernorm(x))


def write_golden(folder, what, told, text, rows, guess, logits_of, names=None):
    """Logits after the last tokens of the text, then after the head's own draft tokens. `guess` computes a row from a token
    and the row before it, `logits_of` the logits of rows. `names` maps logits to tokens."""
    tokens, logits = list(text), []
    for _ in range(1 + GUESSES):
        made = guess(tokens[1:], rows)
        logits.append(logits_of(made[-1 if logits else -POSITIONS:]))
        likeliest = int(logits[-1][-1].argmax())
        tokens.append(names[likeliest] if names else likeliest)
        rows = torch.cat((rows, made[-1:]))
    torch.cat(logits).float().numpy().astype("<f4").tofile(folder / "logits.f32")
    write_json(folder / "golden.json", {"what": what, **told, "positions": POSITIONS, "guesses": tokens[len(text):-1],
                                        "max_abs": float(torch.cat(logits).abs().max())})


def new_folder(folder, config, weights, file="model.safetensors"):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / file, metadata={"format": "pt"})
    write_json(folder / "config.json", config)
    return folder


def write_eagle3(out):
    torch.manual_seed(3)
    target = random_values(transformers.LlamaForCausalLM(known_to_transformers(TARGET3)))
    copy.deepcopy(target).half().save_pretrained(out / "eagle3_target")  # half() also rounds rotary frequencies
    (out / "eagle3_target" / "generation_config.json").unlink(missing_ok=True)
    target = target.double().eval()
    text = torch.randint(0, TARGET3["vocab_size"], (TOKENS3,)).tolist()
    dim, known = HEAD3["hidden_size"], sorted(torch.randperm(HEAD3["vocab_size"])[:HEAD3["draft_vocab_size"]].tolist())
    layer, norm = random_values(Layer3(HEAD3)), random_values(llama.LlamaRMSNorm(dim, HEAD3["rms_norm_eps"]))
    fc = random_values(torch.nn.Linear(3 * dim, dim, bias=False))
    head = random_values(torch.nn.Linear(dim, len(known), bias=False))
    weights = {f"midlayer.{key}": w for key, w in layer.named_parameters()}
    weights |= {"fc.weight": fc.weight, "norm.weight": norm.weight, "lm_head.weight": head.weight}
    weights = {key: w.detach().half() for key, w in weights.items()}
    weights["d2t"] = torch.tensor([token - i for i, token in enumerate(known)])
    weights["t2d"] = torch.tensor([token in known for token in range(HEAD3["vocab_size"])])
    for part in (layer, norm, fc, head):
        part.double()
    read = target(torch.tensor([text]), output_hidden_states=True).hidden_states
    n = TARGET3["num_hidden_layers"]
    rows = fc(torch.cat([read[i][0] for i in (2, n // 2, n - 3)], -1))[:-1]
    write_golden(new_folder(out / "eagle3", HEAD3, weights), "EAGLE-3, of a model of seven layers, with 40 of its 96 tokens",
                 {"target": "eagle3_target", "tokens": text, "known": known}, text, rows,
                 lambda tokens, rows: layer(target.model.embed_tokens.weight[tokens], rows), lambda made: head(norm(made)), known)


def write_next_layer(out):
    torch.manual_seed(5)
    known = transformers.Qwen2Config(**MIMO, attn_implementation="eager")
    dim, eps = known.hidden_size, known.rms_norm_eps
    target, layer = random_values(transformers.Qwen2ForCausalLM(known)), random_values(qwen2.Qwen2DecoderLayer(known, 0))
    layer.input_proj = random_values(torch.nn.Linear(2 * dim, dim, bias=False))
    for name in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
        setattr(layer, name, random_values(qwen2.Qwen2RMSNorm(dim, eps)))
    own = {key: w.half() for key, w in target.state_dict().items()}
    more = {f"model.mtp_layers.0.{key}": w.half() for key, w in layer.state_dict().items()}
    more["lm_head.weight"] = own.pop("lm_head.weight")  # one part has tensors of both
    parts = {"model-00001-of-00002.safetensors": own, "model-00002-of-00002.safetensors": more}
    config = {"architectures": ["MiMoForCausalLM"], "model_type": "mimo", "attention_bias": True, "num_nextn_predict_layers": 1,
              "use_sliding_window": False, **MIMO}
    for file, weights in parts.items():
        folder = new_folder(out / "mimo", config, weights, file)
    write_json(folder / "model.safetensors.index.json",
               {"metadata": {}, "weight_map": {key: file for file, weights in parts.items() for key in weights}})
    target, layer, angles = target.double().eval(), layer.double().eval(), qwen2.Qwen2RotaryEmbedding(known)

    def guess(tokens, rows):
        n = len(rows)
        both = torch.cat((layer.hidden_layernorm(rows), layer.token_layernorm(target.model.embed_tokens.weight[tokens])), -1)
        hidden = torch.full((n, n), float("-inf"), dtype=rows.dtype).triu(1)[None, None]
        x = layer.input_proj(both)[None]
        x = layer(x, attention_mask=hidden, position_embeddings=angles(x, torch.arange(n)[None]))
        return layer.final_layernorm(x[0] if isinstance(x, torch.Tensor) else x[0][0])

    text = torch.randint(0, MIMO["vocab_size"], (TOKENS3,)).tolist()
    write_golden(folder, "a model with the layer that it was trained with for one token more",
                 {"target": "mimo", "tokens": text}, text, target.model(torch.tensor([text])).last_hidden_state[0][:-1], guess,
                 target.lm_head)


class Rows(torch.nn.Module):
    """The layers of a head; its input rows are already combined."""

    def __init__(self, config):
        super().__init__()
        self.model = transformers.LlamaModel(known_to_transformers(config))
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
        write_eagle3(out / "heads")
        write_next_layer(out / "heads")
        hidden = model.model(torch.tensor([tokens])).last_hidden_state[0]
        table = model.model.embed_tokens.weight
        for name, (what, own, dtype, bias, embedding) in HEADS.items():
            config = CONFIG | own
            weights, rows = random_head(name, config, dtype, bias)
            b = weights["fc.bias"].double() if bias else 0
            fc = weights["fc.weight"].double().T
            extra = {"embed_tokens.weight": table.to(dtype)} if embedding else {}
            write_golden(new_folder(out / "heads" / name, config, weights | extra), what, {"target": TARGET}, tokens, hidden[:-1],
                         lambda text, given: rows(torch.cat((table[text], given), dim=1) @ fc + b), model.lm_head)


if __name__ == "__main__":
    main()

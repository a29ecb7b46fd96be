#!/usr/bin/env python3
"""Makes tests/golden/mutations.json: how transformers reads a config.json in which one key is changed.

    python3 scripts/golden/golden_mutations.py tests/golden [--only MODEL]

For each folder of tests/golden/models that transformers itself can load, every key of config.json and every key that the
class of its config has is changed, removed and set to null, one at a time. Other names of keys that the class reads are
added (other_names), and so are a few keys that transformers reads from any config (MORE). Needs torch, transformers, accelerate and safetensors. The file has for each model

    "places": four tokens, "rows": their logits after the last token; row 0 is of the unchanged config.json
    "keys": {KEY: {OUTCOME: [VALUE...]}}: OUTCOME is the number of a row, or "refused" where transformers refuses the
            folder, misses weights or computes no numbers; the value "(removed)" removes the key, "#2" is item 2 of "values"

"not_opened" has the other folders, each with the reason why transformers cannot open it.
"""

import argparse
import copy
import inspect
import json
import math
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers

from golden_weights import run

# A wrong number in a config may ask for more memory than a machine has: transformers refuses it then.
resource.setrlimit(resource.RLIMIT_AS, (5 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
torch._dynamo.config.disable = True  # compiling BitNet's layers takes minutes

REMOVED = "(removed)"
# Below the number of tokens these are not tried: no reader of such a folder may compute so long a sequence.
CONTEXTS = {"max_position_embeddings", "n_positions", "max_seq_len"}
# Bookkeeping of every config class: nothing that computes logits reads it.
NOT_READ = {
    "_name_or_path", "architectures", "chunk_size_feed_forward", "dtype", "id2label", "is_encoder_decoder", "label2id",
    "model_type", "output_attentions", "output_hidden_states", "problem_type", "return_dict", "torch_dtype",
    "transformers_version", "bos_token_id", "eos_token_id"}
ACTS = ["gelu", "gelu_pytorch_tanh", "gelu_new", "relu", "relu2", "silu"]
SCALINGS = [
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "truncate": False},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "attention_factor": 1.5},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 0.7, "mscale_all_dim": 0.4},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "mscale": 0.7},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "beta_fast": 8.0, "beta_slow": 2.0},
    {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"rope_type": "default", "rope_theta": 777.0},
    {"rope_type": "unheard-of"},
]
MORE = {"is_causal": [False, True], "tie_word_embeddings": [True, False], "sliding_window": [3], "use_sliding_window": [True],
        "rope_theta": [777.0], "partial_rotary_factor": [0.5], "head_dim": [4], "attention_bias": [True, False],
        "mlp_bias": [True, False], "use_bidirectional_attention": [True], "rope_scaling": SCALINGS,
        "rope_parameters": SCALINGS, "attn_logit_softcapping": [3.0], "final_logit_softcapping": [3.0],
        "use_qk_norm": [True], "layer_types": ["sliding_attention", "full_attention"], "no_rope_layers": [0],
        "unheard_of": [1]}


def other_values(value):
    """Values of another meaning, most of them valid."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value * 2, value // 2, 0, 1]
    if isinstance(value, float):
        return [value * 1.5 + (0.3 if value == 0 else 0), value / 3]
    if isinstance(value, str):
        return [act for act in ACTS if act != value] if value in ACTS else [value + "_other"]
    if isinstance(value, list):
        changed = [value[1:] + value[:1], value[:-1]]
        if value and isinstance(value[0], (int, float)):
            changed.append([value[0] + 1] + value[1:] if not isinstance(value[0], float) else [value[0] * 0.5] + value[1:])
        return changed
    return [3, 0.5, True] if value is None else []


def encoded(value):
    """JSON has no infinity. This is how transformers writes it into config.json."""
    if isinstance(value, dict):
        return {k: encoded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [encoded(v) for v in value]
    return {"__float__": "Infinity"} if value == math.inf else value


def set_at(config, path, value):
    """A copy of the config with another value at a path; no value removes the key. None: the path is not there."""
    config = copy.deepcopy(config)
    at = config
    for part in path[:-1]:
        if not isinstance(at.get(part), dict):
            return None
        at = at[part]
    if value is Ellipsis:
        if path[-1] not in at:
            return None
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return config


def other_names(kind):
    """Names that a config class reads and does not write: {name: the key that it replaces, or None}."""
    names = {}
    for base in kind.__mro__[:kind.__mro__.index(transformers.PreTrainedConfig)]:
        for found in re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)"|"(\w+)" in kwargs', inspect.getsource(base)):
            names["".join(found)] = None
    return names | kind.attribute_map


def paths(value, before=()):
    for key, inner in value.items():
        yield before + (key,), inner
        if isinstance(inner, dict):
            yield from paths(inner, before + (key,))


def mutations(stored, full):
    """(path, value) of every change, each once."""
    seen = set()
    layers = stored.get("num_hidden_layers", stored.get("n_layer", stored.get("num_layers", 2)))

    def new(path, value):
        config = set_at(stored, path, value)
        if config is None or config == stored or path[0] in NOT_READ:
            return False
        mark = json.dumps([path, None if value is Ellipsis else [value]])
        return mark not in seen and not seen.add(mark)

    values = dict(paths(full)) | dict(paths(stored))
    for path, value in values.items():
        for other in [*other_values(value), None, Ellipsis]:
            if new(path, other):
                yield path, other
    for key, list_of in MORE.items():
        for value in list_of:
            if key in ("layer_types", "no_rope_layers"):
                value = [value] * layers
            if new((key,), value):
                yield (key,), value
    before = ("text_config",) if "text_config" in stored else ()
    kind = stored["text_config"]["model_type"] if before else stored["model_type"]
    for name, key in other_names(transformers.CONFIG_MAPPING[kind]).items():
        path, known = (*before, name), values.get((*before, key), ...)
        for value in [3, 0.5, True, False, [1]] if known is ... else [known, *other_values(known)]:
            if path not in values and new(path, value):
                yield path, value


# Keys of the parts that read images, which chaski does not run.
OF_IMAGES = {"vision_config", "out_hidden_size", "projector_hidden_size", "projector_hidden_act", "image_token_id",
             "video_token_id"}


class Sweep:
    def __init__(self, folder):
        self.stored = json.loads((folder / "config.json").read_text())
        self.images = "vision_config" in self.stored
        golden = json.loads((folder / "golden.json").read_text())
        self.tokens = golden["tokens"]
        self.places = [i * (golden["vocab"] - 1) // 7 for i in (0, 2, 5, 7)]
        self.rows = []
        self.temp = Path(tempfile.mkdtemp())
        for path in folder.iterdir():
            if path.suffix == ".safetensors" or path.name.endswith(".index.json"):
                shutil.copy(path, self.temp)

    def logits(self, config):
        """Four of the last logits, or "refused"."""
        (self.temp / "config.json").write_text(json.dumps(encoded(config), allow_nan=False))
        results = []
        for seed in (1, 2):  # weights that are missing would be random
            torch.manual_seed(seed)
            try:
                kind = transformers.AutoModelForImageTextToText if self.images else transformers.AutoModelForCausalLM
                model, loaded = kind.from_pretrained(
                    self.temp, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32,
                    output_loading_info=True)
                if loaded["mismatched_keys"]:
                    return "refused"
                row = run(model.double(), self.tokens)[-1]
            except Exception:  # whatever a wrong config makes of the class
                return "refused"
            if not all(math.isfinite(x) for x in row) or len(row) <= self.places[-1]:
                return "refused"
            results.append([float(f"{row[i]:.6g}") for i in self.places])
            if not loaded["missing_keys"]:
                break
        return results[0] if results[0] == results[-1] else "refused"

    def outcome(self, config):
        row = self.logits(config)
        if row == "refused":
            return row
        if row not in self.rows:
            self.rows.append(row)
        return str(self.rows.index(row))

    def run(self):
        assert self.outcome(self.stored) == "0"
        kind = copy.deepcopy(self.stored)  # the class writes into its objects
        full = transformers.AutoConfig.for_model(kind.pop("model_type"), **kind).to_dict()
        keys = {}
        for path, value in mutations(self.stored, full):
            if self.images and path[0] in OF_IMAGES:
                continue
            if path[-1] in CONTEXTS and isinstance(value, int) and value < len(self.tokens):
                continue
            outcomes = keys.setdefault(".".join(path), {})
            outcomes.setdefault(self.outcome(set_at(self.stored, path, value)), []).append(REMOVED if value is ... else encoded(value))
        shutil.rmtree(self.temp)
        return {"places": self.places, "rows": self.rows, "keys": keys}


def shared(models):
    """Replaces lists and objects in these models by "#N". Returns the list that N counts in."""
    numbers = {}  # by text, because 1 == 1.0 == True
    for model in models.values():
        for outcomes in model["keys"].values():
            for those in outcomes.values():
                those[:] = [f"#{numbers.setdefault(json.dumps(v), len(numbers))}" if isinstance(v, (dict, list)) else v
                            for v in those]
    return list(numbers)


def unshared(models, values):
    for model in models.values():
        for outcomes in model["keys"].values():
            for those in outcomes.values():
                those[:] = [values[int(v[1:])] if isinstance(v, str) and v.startswith("#") else v for v in those]


def why_not_opened(folder):
    """Why transformers cannot open a golden folder, or None."""
    if not (folder / "config.json").exists():
        return "a GGUF file only"
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] not in transformers.CONFIG_MAPPING:
        return f"transformers has no class for the model_type {config['model_type']}"
    return None


def write(path, models, not_opened):
    values = shared(models)
    lines = []
    for name, model in sorted(models.items()):
        keys = ",\n".join(f"{json.dumps(key)}: {json.dumps(outcomes, allow_nan=False)}" for key, outcomes in model["keys"].items())
        rows = json.dumps(model["rows"])
        lines.append(f'{json.dumps(name)}: {{"places": {model["places"]}, "rows": {rows}, "keys": {{\n{keys}}}}}')
    reasons = ",\n".join(f"{json.dumps(name)}: {json.dumps(reason)}" for name, reason in sorted(not_opened.items()))
    path.write_text('{"values": [\n' + ",\n".join(values) + '],\n"not_opened": {\n' + reasons + '},\n"models": {' +
                    ",\n".join(lines) + "}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--only", metavar="MODEL", nargs="+", help="change only the cases of these models")
    args = parser.parse_args()

    path = args.out / "mutations.json"
    models, not_opened = {}, {}
    if args.only and path.exists():
        stored = json.loads(path.read_text())
        models, not_opened = stored["models"], stored["not_opened"]
        unshared(models, stored["values"])
    for folder in sorted((args.out / "models").iterdir()):
        if not folder.is_dir() or args.only and folder.name not in args.only:
            continue
        if reason := why_not_opened(folder):
            not_opened[folder.name] = reason
            continue
        models[folder.name] = Sweep(folder).run()
        print(folder.name, len(models[folder.name]["keys"]), file=sys.stderr)
    write(path, models, not_opened)


if __name__ == "__main__":
    main()

"""Reads and writes a Llama-like model for prune.py and distill.py: config.json, tensors, tokenizer files.

The input is a Hugging Face folder or the bundled model as a GGUF file written by chaski (which scripts/train/train_heads.py also
reads here). The output is a Hugging Face folder. Needs torch, safetensors, tokenizers and transformers, and gguf for GGUF files.
"""
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

KINDS = ("llama", "mistral", "qwen2", "qwen3")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
                   "vocab.json", "merges.txt", "generation_config.json", "chat_template.jinja")
GGUF_NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
              "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
              "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
              "token_embd": "embed_tokens", "output_norm": "norm"}

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def fail(message):
    raise SystemExit(f"{Path(sys.argv[0]).name}: {message}")


def new_model(config):
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@dataclass
class LlamaFolder:
    config: dict
    tensors: dict  # as in the file: Hugging Face names, any float format
    files: dict    # name: bytes; tokenizer files and the like

    def tokenizer(self, path):
        try:
            return Tokenizer.from_buffer(self.files["tokenizer.json"])
        except KeyError:
            fail(f"{path}: tokenizer.json is missing, expected the model's tokenizer")
        except Exception as error:  # tokenizers raises no narrower type
            fail(f"{path}/tokenizer.json: {error}")

    def own_config(self, path):
        """transformers' configuration."""
        options = {k: v for k, v in self.config.items() if k not in ("model_type", "torch_dtype", "dtype", "architectures")}
        try:
            return transformers.AutoConfig.for_model(self.config["model_type"], **options)
        except Exception as error:  # transformers raises many types
            fail(f"{path}: transformers refuses config.json: {' '.join(str(error).split())}")

    def model(self, path):
        """transformers' model in f32, without dropout."""
        config = self.own_config(path)
        model = new_model(config).eval()
        own = model.state_dict()
        for name, value in self.tensors.items():
            if name not in own:
                if name.endswith("rotary_emb.inv_freq") or name == "lm_head.weight":
                    continue
                fail(f"{path}: tensor {name} is unexpected in a {self.config['model_type']} model of {config.num_hidden_layers} layers")
            if value.shape != own[name].shape:
                fail(f"{path}: tensor {name} has shape {list(value.shape)}, expected {list(own[name].shape)} as in config.json")
        missing = own.keys() - self.tensors.keys()
        if config.tie_word_embeddings:
            missing.discard("lm_head.weight")
        if missing:
            fail(f"{path}: tensor {min(missing)} is missing")
        model.load_state_dict({n: v.float() for n, v in self.tensors.items() if n in own}, strict=False)
        return model.requires_grad_(False)

    def parameters(self):
        return sum(value.numel() for value in self.tensors.values())

    def write(self, out):
        """Writes a temporary folder next to `out` and renames it at the end, so that `out` is complete or absent."""
        out = Path(out)
        new = out.with_name(f".{out.name}.{os.getpid()}.tmp")
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            new.mkdir(parents=True)
            save_file({n: v.contiguous() for n, v in self.tensors.items()}, new / "model.safetensors", metadata={"format": "pt"})
            for name, value in self.files.items():
                (new / name).write_bytes(value)
            (new / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
            for path in new.iterdir():
                path.chmod(0o644)
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
            new.rename(out)
        except (OSError, SafetensorError) as error:
            fail(f"{out}: cannot be written: {error}")
        finally:
            shutil.rmtree(new, ignore_errors=True)
            signal.signal(signal.SIGTERM, before)


def expect_no(out):
    """Checks the output path before hours of work."""
    if os.path.lexists(out):
        fail(f"{out}: already exists, expected the name of a new folder")
    if not Path(out).absolute().parent.is_dir():
        fail(f"{out}: {Path(out).absolute().parent} is not a folder")


def read(path):
    path = Path(path)
    if path.is_dir():
        return read_folder(path)
    if path.is_file():
        return read_gguf(path)
    fail(f"{path}: cannot be opened: no such file or folder")


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")


def read_folder(path):
    config = read_json(path / "config.json")
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind not in KINDS:
        fail(f"{path}/config.json: model_type is {kind}, expected {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
        if type(config.get(key)) is not int or config[key] < 1:
            fail(f"{path}/config.json: {key} is {config.get(key)}, expected a number")
    if config["num_attention_heads"] % (config.get("num_key_value_heads") or config["num_attention_heads"]):
        fail(f"{path}/config.json: num_key_value_heads is {config['num_key_value_heads']}, expected a divisor of num_attention_heads")
    if "quantization_config" in config:
        fail(f"{path}/config.json: quantization_config is present (packed weights), expected float weights")
    windows = config.get("use_sliding_window") and config.get("sliding_window", 4096)
    if len(set(config.get("layer_types") or [])) > 1 or \
            windows and not config.get("layer_types") and 0 < config.get("max_window_layers", 28) < config["num_hidden_layers"]:
        fail(f"{path}/config.json: layers have different windows, expected the same window in all layers")
    index = path / "model.safetensors.index.json"
    parts = sorted(set(read_json(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    tensors = {}
    for part in parts:
        try:
            tensors |= load_file(path / part)
        except (OSError, SafetensorError) as error:
            fail(f"{path / part}: {error}")
    for name, value in tensors.items():
        if not value.is_floating_point():
            fail(f"{path}: tensor {name} is {value.dtype}, expected floats")
    files = {name: (path / name).read_bytes() for name in TOKENIZER_FILES if (path / name).is_file()}
    return LlamaFolder(config, tensors, files)


def half_split(w, heads):
    """Reorders rows from GGUF (rotary pairs are neighbours) to Hugging Face (half a head apart)."""
    return w.reshape(heads, -1, 2, *w.shape[1:]).transpose(1, 2).reshape(w.shape)


def read_gguf(path):
    import gguf

    try:
        file = gguf.GGUFReader(path)
        keys = {name: field.contents() for name, field in file.fields.items()}
    except (ValueError, OSError, IndexError) as error:
        fail(f"{path}: file is not a readable GGUF file: {error}")
    kind, vocabulary = keys.get("general.architecture"), keys.get("tokenizer.ggml.model")
    if kind != "llama" or vocabulary != "gpt2":
        fail(f"{path}: model is {kind} with a {vocabulary} vocabulary, expected the bundled model, or the Hugging Face folder of another model")
    for tensor in file.tensors:
        parts = tensor.name.split(".")
        if len(parts) < 2 or parts[-1] != "weight" or parts[-2] not in GGUF_NAMES:
            fail(f"{path}: tensor {tensor.name} is not in the bundled model, expected the bundled model, or the Hugging Face folder of another model")
    try:
        return of_gguf(file, keys)
    except KeyError as error:
        fail(f"{path}: {error.args[0]} is missing, expected the bundled model")


def of_gguf(file, keys):
    import gguf

    number = lambda name: keys[f"llama.{name}"]
    pieces, merges = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.merges"]
    heads, kv_heads, width = number("attention.head_count"), number("attention.head_count_kv"), number("embedding_length")
    ends = {"bos_token_id": keys["tokenizer.ggml.bos_token_id"], "eos_token_id": keys["tokenizer.ggml.eos_token_id"]}
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(pieces), "hidden_size": width,
        "intermediate_size": number("feed_forward_length"), "num_hidden_layers": number("block_count"),
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": width // heads, "hidden_act": "silu",
        "max_position_embeddings": number("context_length"), "rms_norm_eps": float(f"{number('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": number("rope.freq_base"), "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True, "torch_dtype": "float32", **ends}
    tensors = {}
    for tensor in file.tensors:
        parts = tensor.name.split(".")  # blk.3.attn_q.weight
        w = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype("float32").copy())
        if parts[-2] in ("attn_q", "attn_k"):
            w = half_split(w, heads if parts[-2] == "attn_q" else kv_heads)
        tensors["model." + ("layers." + parts[1] + "." if parts[0] == "blk" else "") + GGUF_NAMES[parts[-2]] + ".weight"] = w

    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [tuple(m.split(" ")) for m in merges]))
    end = pieces[ends["bos_token_id"]]
    tokenizer.add_special_tokens([end])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{end} $A", special_tokens=[(end, ends["bos_token_id"])])
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": end, "eos_token": end, "add_bos_token": True}
    return LlamaFolder(config, tensors, {"tokenizer.json": tokenizer.to_str().encode(),
                                         "tokenizer_config.json": (json.dumps(tokenizer_config, indent=2) + "\n").encode()})


def ids_of(tokenizer, path):
    """The text as one list of tokens."""
    try:
        return tokenizer.encode(Path(path).read_text(encoding="utf-8")).ids
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {error}")

#!/usr/bin/env python3
"""Trains Medusa heads or an EAGLE head for the bundled model, in minutes on two cores: for `chaski run --draft OUT`.

    chaski convert models/bundled/story.quipu story.gguf
    python3 scripts/train_heads.py story.gguf --data ../shared/data --out /tmp/heads --minutes 8
    python3 scripts/train_heads.py story.gguf --data ../shared/data --out /tmp/eagle --minutes 8 --eagle

The model is what the file says, and stays as it is. Medusa head I learns the token I + 2 places behind the one whose row it reads (the
row in front of the model's head), as Cai et al. 2024 describe it. An EAGLE head learns the next such row, and what the model's head makes
of it, from each row and the token behind it, as Li et al. 2024 describe it; --steps 2 and more go on from its own rows. The texts are
the stories that scripts/train.py reads (CDLA-Sharing-1.0), without those that overlap with the held-out ones; how often each head (or
guess of an EAGLE head, behind right ones) is right about these is printed. Needs torch, numpy, safetensors, tokenizers, transformers and gguf.

Not for: other architectures than the bundled model's, GPUs.
"""
import argparse
import json
import math
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

import llama_folder
import train


def read_model(path):
    folder = llama_folder.read_gguf(path)
    c = folder.config
    sizes = SimpleNamespace(vocab=c["vocab_size"], width=c["hidden_size"], layers=c["num_hidden_layers"], ffn=c["intermediate_size"],
                            heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"], head_dim=c["head_dim"], dropout=0.0)
    model = train.Llama(sizes)
    model.load_state_dict({name.removeprefix("model."): w for name, w in folder.tensors.items()})
    return model.eval().requires_grad_(False), sizes, folder.tokenizer(path)


def hidden_rows(model, ids):
    x, length = model.embed_tokens(ids), ids.shape[1]
    for layer in model.layers:
        x = layer(x, model.cos[:length], model.sin[:length])
    return model.norm(x)


class Head(nn.Module):
    def __init__(self, model):
        super().__init__()
        vocab, width = model.embed_tokens.weight.shape
        self.linear, self.output = nn.Linear(width, width), nn.Linear(width, vocab, bias=False)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.output.weight.data.copy_(model.embed_tokens.weight)

    def forward(self, x):
        return self.output(x + F.silu(self.linear(x)))


class Medusa(nn.Module):
    def __init__(self, model, sizes, args):
        super().__init__()
        self.heads = nn.ModuleList(Head(model) for _ in range(args.heads))

    def loss(self, model, x, ids):
        return sum(0.8**i * F.cross_entropy(logits.flatten(0, 1), ids[:, 2 + i:].flatten())
                   for i, logits in enumerate(self.logits(model, x, ids)))

    def logits(self, model, x, ids):
        """Of each head, for the tokens 2, 3, ... places behind the first."""
        return [head(x[:, :-(2 + i)]) for i, head in enumerate(self.heads)]

    def write(self, out, sizes, base):
        write_medusa(self.heads, out, base)


class Eagle(nn.Module):
    def __init__(self, model, sizes, args):
        super().__init__()
        self.fc, self.layer, self.steps = nn.Linear(2 * sizes.width, sizes.width), train.Layer(sizes), args.steps
        self.layer.input_layernorm = nn.Identity()
        with torch.no_grad():  # at first, what comes in goes out
            self.fc.weight.normal_(std=0.02)
            self.fc.weight[:, sizes.width:] += torch.eye(sizes.width)
            self.fc.bias.zero_()
            for w in (self.layer.self_attn.o_proj.weight, self.layer.mlp.down_proj.weight):
                w.zero_()

    def rows(self, model, x, ids):
        """Of each step, from row i and token i + 1: rows 1, 2, ... places behind the first. A step is behind rows of the one before it
        alone, while a guess sees the model's own up to where it begins."""
        given, all_rows = x[:, :-1], []
        for _ in range(self.steps):
            n = given.shape[1]
            tokens = model.embed_tokens(ids[:, -n:])
            given = self.layer(self.fc(torch.cat((tokens, given), -1)), model.cos[:n], model.sin[:n])
            all_rows.append(given)
            given = given[:, :-1]
        return all_rows

    def loss(self, model, x, ids):
        total = 0
        for i, rows in enumerate(self.rows(model, x, ids)):
            real = x[:, 1 + i:]
            wanted = F.softmax(F.linear(real, model.embed_tokens.weight), -1)
            said = F.log_softmax(F.linear(rows, model.embed_tokens.weight), -1)
            total = total + 0.8**i * (F.smooth_l1_loss(rows, real) - (wanted * said).sum(-1).mean())
        return total

    def logits(self, model, x, ids):
        return [F.linear(rows[:, :-1], model.embed_tokens.weight) for rows in self.rows(model, x, ids)]

    def write(self, out, sizes, base):
        out.mkdir(parents=True, exist_ok=True)
        weights = {"fc.weight": self.fc.weight, "fc.bias": self.fc.bias}
        weights.update({f"layers.0.{key}": w for key, w in self.layer.state_dict().items()})
        save_file({k: w.detach().half().contiguous() for k, w in weights.items()}, out / "model.safetensors",
                  metadata={"format": "pt"})
        (out / "config.json").write_text(json.dumps(
            {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "bias": True,
             "hidden_size": sizes.width, "intermediate_size": sizes.ffn, "num_hidden_layers": 1,
             "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads, "vocab_size": sizes.vocab,
             "max_position_embeddings": 2 * train.CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
             "base_model_name_or_path": base}, indent=2) + "\n")


def right_shares(model, heads, ids):
    """Of the places of a text, those where each head's likeliest token is the one that stands there."""
    right, places = 0, 0
    with torch.no_grad():
        for at in range(0, len(ids) - train.CONTEXT, train.CONTEXT):
            row = torch.from_numpy(ids[at:at + train.CONTEXT])[None]
            hits = [logits.argmax(-1) == row[:, 2 + i:]
                    for i, logits in enumerate(heads.logits(model, hidden_rows(model, row), row))]
            right, places = right + np.array([h.sum().item() for h in hits]), places + np.array([h.numel() for h in hits])
    return right / places


def write_medusa(heads, out, base):
    out.mkdir(parents=True, exist_ok=True)
    weights = {}
    for i, head in enumerate(heads):
        weights[f"{i}.0.linear.weight"], weights[f"{i}.0.linear.bias"] = head.linear.weight, head.linear.bias
        weights[f"{i}.1.weight"] = head.output.weight
    save_file({k: w.detach().half().contiguous() for k, w in weights.items()}, out / "medusa_lm_head.safetensors",
              metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(
        {"medusa_num_heads": len(heads), "medusa_num_layers": 1, "base_model_name_or_path": base}, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the bundled model as GGUF")
    parser.add_argument("--data", type=Path, required=True, help="folder with text/ and eval/")
    parser.add_argument("--out", type=Path, required=True, help="gets config.json and safetensors")
    parser.add_argument("--eagle", action="store_true", help="an EAGLE head, not Medusa heads")
    parser.add_argument("--heads", type=int, help="of Medusa (default 3)")
    parser.add_argument("--steps", type=int, help="of EAGLE: how many guesses one behind the other it learns (default 1)")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--batch", type=int, default=4, help="rows of 256 tokens a step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if (args.steps if not args.eagle else args.heads) is not None:
        parser.error("--heads is of Medusa heads, --steps of an EAGLE head: the other has no effect")
    args.heads, args.steps = 3 if args.heads is None else args.heads, 1 if args.steps is None else args.steps
    if min(args.heads, args.steps) < 1:
        parser.error("--heads and --steps are 1 or more")
    llama_folder.expect_no(args.out)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)

    model, sizes, tokenizer = read_model(args.model)
    documents = train.read_documents(args.data)["stories"]
    stream = train.Stream(train.encode(tokenizer, documents), args.seed)
    held_out = (args.data / train.HELD_OUT["stories"]).read_text(encoding="utf-8")
    held_out = np.concatenate(train.encode(tokenizer, [t for t in held_out.split(train.END) if t.strip()]))[:20000]
    heads = (Eagle if args.eagle else Medusa)(model, sizes, args)
    print(f"{stream.size} tokens of stories; {sum(p.numel() for p in heads.parameters())} numbers to learn")
    optimizer = torch.optim.AdamW(heads.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=0.01)
    start, step, losses = time.monotonic(), 0, []
    while (progress := (time.monotonic() - start) / (60 * args.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, (step + 1) / 20) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        ids = torch.from_numpy(np.stack([stream.take(255) for _ in range(args.batch)]))
        with torch.no_grad():
            x = hidden_rows(model, ids)
        loss = heads.loss(model, x, ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step} {100 * progress:.0f}% loss {np.mean(losses[-50:]):.4f}", flush=True)
    shares = right_shares(model, heads, held_out)
    print(f"{step} steps of {args.batch * 256} tokens; right on held-out stories: "
          + ", ".join(f"{s:.3f}" for s in shares))
    heads.write(args.out, sizes, "chaski-stories-3m")


if __name__ == "__main__":
    main()

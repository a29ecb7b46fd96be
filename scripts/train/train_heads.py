#!/usr/bin/env python3
"""Trains Medusa heads, an EAGLE or an EAGLE-3 head for the bundled model, for `chaski run --draft OUT`. Minutes on two cores.

    chaski convert models/bundled/story.quipu story.gguf
    python3 scripts/train/train_heads.py story.gguf --data ../shared/data --out /tmp/heads --minutes 8
    python3 scripts/train/train_heads.py story.gguf --data ../shared/data --out /tmp/eagle --minutes 8 --eagle

The model itself is not changed. In the following, a row is the model's last hidden state at a token.
- Medusa head I predicts the token I + 2 positions after the token whose row it reads (Cai et al. 2024).
- An EAGLE head predicts the next row, and the model's logits of it, from a row and the following token (Li et al. 2024). With
  --steps 2 or more it continues from its own rows.
- An EAGLE-3 head (--eagle3) predicts the model's logits of the next row, for the most frequent tokens of the stories, from the
  inputs of three layers and the following token (Li et al. 2025).

The texts are the stories of scripts/train/train.py (CDLA-Sharing-1.0), without those that overlap with the held-out ones. At the
end, the accuracy of each head (or draft token of an EAGLE head, after correct ones) on the held-out stories is printed. Needs
torch, numpy, safetensors, tokenizers, transformers and gguf.

Not for: architectures other than the bundled model's, GPUs.
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


def hidden_rows(model, ids, reads=()):
    """The inputs of the layers in `reads`, side by side, followed by the rows after the last norm."""
    x, length, parts = model.embed_tokens(ids), ids.shape[1], []
    for i, layer in enumerate(model.layers):
        if i in reads:
            parts.append(x)
        x = layer(x, model.cos[:length], model.sin[:length])
    return torch.cat((*parts, model.norm(x)), -1)


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
    reads = ()

    def __init__(self, model, sizes, args, counts):
        super().__init__()
        self.heads = nn.ModuleList(Head(model) for _ in range(args.heads))

    def loss(self, model, x, ids):
        return sum(0.8**i * F.cross_entropy(logits.flatten(0, 1), ids[:, 2 + i:].flatten())
                   for i, logits in enumerate(self.logits(model, x, ids)))

    def logits(self, model, x, ids):
        """The logits of each head, for the tokens 2, 3, ... positions later."""
        return [head(x[:, :-(2 + i)]) for i, head in enumerate(self.heads)]

    def write(self, out, sizes, base):
        write_medusa(self.heads, out, base)


class Eagle(nn.Module):
    reads = ()

    def __init__(self, model, sizes, args, counts):
        super().__init__()
        self.fc, self.layer, self.steps = nn.Linear(2 * sizes.width, sizes.width), train.Layer(sizes), args.steps
        self.layer.input_layernorm = nn.Identity()
        with torch.no_grad():  # starts as the identity of the input row
            self.fc.weight.normal_(std=0.02)
            self.fc.weight[:, sizes.width:] += torch.eye(sizes.width)
            self.fc.bias.zero_()
            for w in (self.layer.self_attn.o_proj.weight, self.layer.mlp.down_proj.weight):
                w.zero_()

    def rows(self, model, x, ids):
        """The rows that each step predicts from row i and token i + 1, for 1, 2, ... positions later. A step attends only to rows
        of the step before it, while at run time a draft token attends to the model's own rows up to its start."""
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
            predicted = F.log_softmax(F.linear(rows, model.embed_tokens.weight), -1)
            total = total + 0.8**i * (F.smooth_l1_loss(rows, real) - (wanted * predicted).sum(-1).mean())
        return total

    def logits(self, model, x, ids):
        return [F.linear(rows[:, :-1], model.embed_tokens.weight) for rows in self.rows(model, x, ids)]

    def write(self, out, sizes, base):
        weights = {"fc.weight": self.fc.weight, "fc.bias": self.fc.bias}
        weights.update({f"layers.0.{key}": w for key, w in self.layer.state_dict().items()})
        write_eagle(out, sizes, base, weights, {"architectures": ["LlamaForCausalLM"], "bias": True})


class Eagle3(nn.Module):
    reads = 1, 3, 5

    def __init__(self, model, sizes, args, counts):
        super().__init__()
        width, self.steps = sizes.width, args.steps
        self.known = np.sort(np.argsort(-counts, kind="stable")[:args.known])
        self.fc, self.layer, self.head = nn.Linear(3 * width, width, bias=False), train.Layer(sizes), \
            nn.Linear(width, len(self.known), bias=False)
        self.layer.hidden_norm, self.norm = train.Norm(width), train.Norm(width)
        attn = self.layer.self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(attn, name, nn.Linear(2 * width, getattr(attn, name).out_features, bias=False))
        with torch.no_grad():  # starts as the identity of the last input
            self.fc.weight.normal_(std=0.02)
            self.fc.weight[:, 2 * width:] += torch.eye(width)
            self.norm.weight.copy_(model.norm.weight)
            self.head.weight.copy_(model.embed_tokens.weight[self.known])
            for w in (attn.o_proj.weight, self.layer.mlp.down_proj.weight):
                w.zero_()

    def step_logits(self, model, x, ids):
        """The logits of each step after row i and token i + 1, like those of an EAGLE head."""
        width, layer, out = model.norm.weight.shape[0], self.layer, []
        given = self.fc(x[:, :-1, :-width])
        for _ in range(self.steps):
            n = given.shape[1]
            both = torch.cat((layer.input_layernorm(model.embed_tokens(ids[:, -n:])), layer.hidden_norm(given)), -1)
            given = given + layer.self_attn(both, model.cos[:n], model.sin[:n])
            given = given + layer.mlp(layer.post_attention_layernorm(given))
            out.append(self.head(self.norm(given)))
            given = given[:, :-1]
        return out

    def loss(self, model, x, ids):
        total, width = 0, model.norm.weight.shape[0]
        for i, predicted in enumerate(self.step_logits(model, x, ids)):
            wanted = F.softmax(F.linear(x[:, 1 + i:, -width:], model.embed_tokens.weight), -1)[..., self.known]
            total = total - 0.8**i * (wanted * F.log_softmax(predicted, -1)).sum(-1).mean()
        return total

    def logits(self, model, x, ids):
        vocab, known = model.embed_tokens.weight.shape[0], torch.from_numpy(self.known)
        return [torch.full((*predicted.shape[:2], vocab), -math.inf).index_copy(-1, known, predicted)[:, :-1]
                for predicted in self.step_logits(model, x, ids)]

    def write(self, out, sizes, base):
        weights = {f"midlayer.{key}": w for key, w in self.layer.state_dict().items()}
        weights |= {"fc.weight": self.fc.weight, "norm.weight": self.norm.weight, "lm_head.weight": self.head.weight}
        known = torch.from_numpy(self.known)
        write_eagle(out, sizes, base, weights,
                    {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(known),
                     "eagle_aux_hidden_state_layer_ids": list(self.reads)},
                    {"d2t": known - torch.arange(len(known)), "t2d": torch.isin(torch.arange(sizes.vocab), known)})


def write_eagle(out, sizes, base, weights, own, more={}):
    out.mkdir(parents=True, exist_ok=True)
    save_file({k: w.detach().half().contiguous() for k, w in weights.items()} | more, out / "model.safetensors",
              metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(
        {**own, "model_type": "llama", "hidden_act": "silu",
         "hidden_size": sizes.width, "intermediate_size": sizes.ffn, "num_hidden_layers": 1,
         "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads, "vocab_size": sizes.vocab,
         "max_position_embeddings": 2 * train.CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "base_model_name_or_path": base}, indent=2) + "\n")


def accuracies(model, heads, ids):
    """The fraction of positions at which each head's top-1 token is the token of the text."""
    right, places = 0, 0
    with torch.no_grad():
        for at in range(0, len(ids) - train.CONTEXT, train.CONTEXT):
            row = torch.from_numpy(ids[at:at + train.CONTEXT])[None]
            hits = [logits.argmax(-1) == row[:, 2 + i:]
                    for i, logits in enumerate(heads.logits(model, hidden_rows(model, row, heads.reads), row))]
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
    parser.add_argument("--out", type=Path, required=True, help="output folder for config.json and safetensors")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--eagle", action="store_true", help="train an EAGLE head instead of Medusa heads")
    kind.add_argument("--eagle3", action="store_true", help="train an EAGLE-3 head")
    parser.add_argument("--heads", type=int, help="number of Medusa heads (default 3)")
    parser.add_argument("--steps", type=int, help="EAGLE: number of consecutive draft tokens to train (default 1)")
    parser.add_argument("--known", type=int, help="EAGLE-3: size of the draft vocabulary (default 1024)")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--batch", type=int, default=4, help="rows of 256 tokens per step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for flag, value, has_effect in (("--heads", args.heads, not (args.eagle or args.eagle3)),
                                    ("--steps", args.steps, args.eagle or args.eagle3), ("--known", args.known, args.eagle3)):
        if value is not None and not has_effect:
            parser.error(f"{flag} has no effect here: --heads is for Medusa heads, --steps for EAGLE heads, --known for EAGLE-3 heads")
        if value is not None and value < 1:
            parser.error(f"{flag} is {value}, expected 1 or more")
    args.heads, args.steps, args.known = args.heads or 3, args.steps or 1, args.known or 1024
    llama_folder.expect_no(args.out)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)

    model, sizes, tokenizer = read_model(args.model)
    documents = train.read_documents(args.data)["stories"]
    texts = train.encode(tokenizer, documents)
    stream = train.Stream(texts, args.seed)
    held_out = (args.data / train.HELD_OUT["stories"]).read_text(encoding="utf-8")
    held_out = np.concatenate(train.encode(tokenizer, [t for t in held_out.split(train.END) if t.strip()]))[:20000]
    counts = np.bincount(np.concatenate(texts), minlength=sizes.vocab)
    heads = (Eagle3 if args.eagle3 else Eagle if args.eagle else Medusa)(model, sizes, args, counts)
    print(f"{stream.size} tokens of stories; {sum(p.numel() for p in heads.parameters())} parameters to train")
    optimizer = torch.optim.AdamW(heads.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=0.01)
    start, step, losses = time.monotonic(), 0, []
    while (progress := (time.monotonic() - start) / (60 * args.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1, (step + 1) / 20) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        ids = torch.from_numpy(np.stack([stream.take(255) for _ in range(args.batch)]))
        with torch.no_grad():
            x = hidden_rows(model, ids, heads.reads)
        loss = heads.loss(model, x, ids)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step} {100 * progress:.0f}% loss {np.mean(losses[-50:]):.4f}", flush=True)
    shares = accuracies(model, heads, held_out)
    print(f"{step} steps of {args.batch * 256} tokens; accuracy on held-out stories: "
          + ", ".join(f"{s:.3f}" for s in shares))
    heads.write(args.out, sizes, "chaski-stories-3m")


if __name__ == "__main__":
    main()

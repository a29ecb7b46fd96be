#!/usr/bin/env python3
"""Trains the bundled model: a few million parameters that tell short stories.

Makes a Hugging Face folder from text files on two CPU cores: cleans the texts, trains a byte-level BPE, trains a llama
(RMSNorm, SwiGLU, rotary positions, grouped-query attention, tied embeddings), and writes config.json,
model.safetensors and tokenizer.json.

    python3 scripts/train/train.py --data ../shared/data --out /tmp/train --minutes 60

Running it again with the same arguments resumes from the last checkpoint. It reads only texts with a known licence
(SOURCES below). The evaluation text is only measured, and stories that overlap with it are dropped.

Not for: large models, several machines, GPUs.
"""
import argparse
import csv
import json
import math
import os
import re
import shutil
import time
from pathlib import Path

import numpy as np
import torch
import torch._inductor.config
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

END = "<|endoftext|>"  # id 0: begins every text, and so ends the one before it
CONTEXT = 512

# The texts, and the share of each source in the training rows at the start and at the end of training.
# 4.8 MB of stories are too few to learn grammar from, so training starts with old books.
SOURCES = {
    "stories": (["text/tinystories_merged.txt"], 0.35, 0.95),     # CDLA-Sharing-1.0
    "fairytales": (["text/fairytales_train.txt"], 0.33, 0.05),    # Apache-2.0
    "novels": (["text/novels100/" + name for name in (            # public domain by age; written for children
        "Burnett_Garden_1911.txt", "Burnett_Lord_1886.txt", "Burnett_Princess_1905.txt", "Ward_Milly_1881.txt",
        "Stevenson_Treasure_1883.txt", "Kipling_Captains_1896.txt")], 0.32, 0.0),
}
HELD_OUT = {"stories": "eval/tinystories_val_head.txt", "fairytales": "text/fairytales_val.txt"}


# ---------------------------------------------------------------------------------------------------- texts

MOJIBAKE = [("\u00e2\u20ac\u2122", "'"), ("\u00e2\u20ac\u02dc", "'"), ("\u00e2\u20ac\u0153", '"'),
            ("\u00e2\u20ac\u201c", "-"), ("\u00e2\u20ac\u201d", "-"), ("\u00e2\u20ac\u009d", '"'),
            ("\u00e2\u20ac", '"')]  # UTF-8 read as cp1252; the closing quote lost its last byte
PLAIN = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-",
                       "\u2026": "...", "\u00a0": " ", "\ufeff": ""})


def clean(text):
    """Plain quotes and dashes, no extra blanks. Only for training text; the measured text is not changed."""
    for bad, good in MOJIBAKE:
        text = text.replace(bad, good)
    text = re.sub(r"[ \t]+", " ", text.translate(PLAIN))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" *\n *", "\n", text)).strip()


def unwrap(text):
    """Joins the lines of a paragraph; books have hard line ends."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text)


def runs_of_words(text, length=20):
    words = re.findall(r"[a-z0-9']+", clean(text).lower())
    return {tuple(words[i:i + length]) for i in range(len(words) - length + 1)}


def read_documents(data):
    """{source: [text]}, without stories that share 20 consecutive words with the held-out ones."""
    documents = {}
    for source, (files, _, _) in SOURCES.items():
        whole = "".join((data / f).read_text(encoding="utf-8").strip() + END for f in files)
        texts = [clean(t) for t in whole.split(END)]
        documents[source] = [t if source == "stories" else unwrap(t) for t in texts if t]
    seen = runs_of_words((data / HELD_OUT["stories"]).read_text(encoding="utf-8"))
    before = len(documents["stories"])
    documents["stories"] = [t for t in documents["stories"] if seen.isdisjoint(runs_of_words(t))]
    print(f"stories: {before}, of which {before - len(documents['stories'])} dropped because they overlap with the held-out text")
    return documents


# ---------------------------------------------------------------------------------------------------- tokenizer

def train_tokenizer(documents, vocab):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)  # the GPT-2 pattern
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    # The stories count three times, so that the pieces fit them.
    tokenizer.train_from_iterator(documents["stories"] * 3 + documents["fairytales"], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, 0)])
    return tokenizer


def encode(tokenizer, texts):
    """One list of ids per text, each beginning with END."""
    return [np.array(e.ids, dtype=np.int64) for e in tokenizer.encode_batch(texts)]


class Stream:
    """The texts of one source, one after another, shuffled in every epoch. A checkpoint saves only its position."""

    def __init__(self, ids, seed):
        self.ids, self.seed, self.epoch, self.at = ids, seed, 0, 0
        self.size = sum(map(len, ids))
        self.shuffle()

    def shuffle(self):
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.ids))
        self.flat = np.concatenate([self.ids[i] for i in order] + [np.zeros(1, dtype=np.int64)])

    def take(self, length):
        """length + 1 ids; the last one is only a target, and the first of the next row."""
        if self.at + length + 1 > len(self.flat):
            self.epoch, self.at = self.epoch + 1, 0
            self.shuffle()
        row = self.flat[self.at:self.at + length + 1]
        self.at += length
        return row

    def state(self):
        return self.epoch, self.at

    def load(self, state):
        self.epoch, self.at = state
        self.shuffle()


# ---------------------------------------------------------------------------------------------------- model

def rms_norm(x, weight, eps=1e-5):
    x = x.float()
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)) * weight


def rotate(x, cos, sin):
    """Rotary positions, half-split: channel i rotates with channel i + head_dim / 2."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return rms_norm(x, self.weight)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c.heads, c.kv_heads, c.head_dim
        self.q_proj = nn.Linear(c.width, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.width, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.width, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        group = self.heads // self.kv_heads  # query heads 0..group-1 share kv head 0, and so on
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.width, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.width, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c.width), Norm(c.width)
        self.self_attn, self.mlp = Attention(c), FeedForward(c)
        self.dropout = c.dropout

    def forward(self, x, cos, sin):
        x = x + F.dropout(self.self_attn(self.input_layernorm(x), cos, sin), self.dropout, self.training)
        return x + F.dropout(self.mlp(self.post_attention_layernorm(x)), self.dropout, self.training)


class Llama(nn.Module):
    """Module names are those of LlamaForCausalLM without "model.", so the state dict is exported unchanged."""

    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = Norm(c.width)
        frequency = 10000.0 ** (-torch.arange(0, c.head_dim, 2).float() / c.head_dim)
        angle = torch.outer(torch.arange(CONTEXT).float(), frequency)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:  # matrices that write to the residual stream start smaller: 2 * layers such terms are added
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * c.layers) if into_residual else 0.02)

    def forward(self, ids, targets):
        """ids, targets: (batch, length). Returns the mean cross-entropy in nats per token."""
        length = ids.shape[1]
        x, cos, sin = self.embed_tokens(ids), self.cos[:length], self.sin[:length]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.logits(x).float().flatten(0, 1), targets.flatten())

    def logits(self, x):
        return F.linear(self.norm(x), self.embed_tokens.weight)

    @torch.no_grad()
    def generate(self, ids, count, temperature, seed):
        """Samples a short text. Slow, because there is no KV cache."""
        generator = torch.Generator().manual_seed(seed)
        ids = list(ids)
        for _ in range(count):
            window = torch.tensor([ids[-CONTEXT:]])
            x = self.embed_tokens(window)
            for layer in self.layers:
                x = layer(x, self.cos[:window.shape[1]], self.sin[:window.shape[1]])
            p = torch.softmax(self.logits(x[0, -1]).float() / temperature, -1)
            p[p < 0.05 * p.max()] = 0
            ids.append(int(torch.multinomial(p, 1, generator=generator)))
            if ids[-1] == 0:
                break
        return ids


# ---------------------------------------------------------------------------------------------------- optimizer

def orthogonal(g, steps=5):
    """Newton-Schulz: the matrix nearest to g with all singular values about 1 (the quintic of Jordan et al. 2024)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[-2] > g.shape[-1]
    x = g.mT if tall else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Orthogonalized momentum, for the matrices inside the layers. Matrices of the same shape are stacked."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for (rows, columns), params in shapes.items():
                updates = []
                for p in params:
                    m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    m.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(m, group["momentum"]))  # Nesterov
                scale = group["lr"] * max(1, rows / columns) ** 0.5
                for p, u in zip(params, orthogonal(torch.stack(updates))):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-scale)


def make_optimizers(model, args):
    matrices = [p for p in model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    return [Muon(matrices, lr=args.lr, weight_decay=args.weight_decay),
            torch.optim.AdamW(others, lr=args.lr_embedding, betas=(0.9, 0.95), weight_decay=0.01, fused=True)]


def rate(progress, warmup=0.02):
    """Factor of the learning rates: a short warm-up, then a cosine to zero."""
    return min(progress / warmup, 1) * 0.5 * (1 + math.cos(math.pi * min(progress, 1)))


# ---------------------------------------------------------------------------------------------------- measuring

@torch.no_grad()
def held_out_loss(model, ids, bf16, rows=None, batch=8):
    """Mean nats per token over non-overlapping windows of CONTEXT tokens (the first `rows` windows, or all)."""
    model.eval()
    total = count = 0
    starts = list(range(0, len(ids) - CONTEXT, CONTEXT))[:rows]
    batches = [starts[i:i + batch] for i in range(0, len(starts), batch)]
    if rows is None and (len(ids) - 1) % CONTEXT:
        batches.append([(len(ids) - 1) // CONTEXT * CONTEXT])  # the short window at the end
    for group in batches:
        x = torch.from_numpy(np.stack([ids[s:s + CONTEXT + 1] for s in group]))
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(x[:, :-1], x[:, 1:])
        total, count = total + loss.item() * (x.numel() - len(x)), count + x.numel() - len(x)
    model.train()
    return total / count, count


def sample(model, tokenizer, seed, prompt="Once upon a time", temperature=0.8, count=160):
    model.eval()
    text = tokenizer.decode(model.generate(tokenizer.encode(prompt).ids, count, temperature, seed))
    model.train()
    return text


# ---------------------------------------------------------------------------------------------------- output

def export(model, tokenizer, c, folder):
    """Writes a temporary Hugging Face folder next to `folder`, then renames it."""
    new, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    weights = {"model." + name: p.detach().float().contiguous() for name, p in model.state_dict().items()}
    save_file(weights, new / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(new / "tokenizer.json"))
    special = {"bos_token_id": 0, "eos_token_id": 0}
    write_json(new / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": c.vocab, "hidden_size": c.width,
        "intermediate_size": c.ffn, "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim, "hidden_act": "silu",
        "max_position_embeddings": CONTEXT, "initializer_range": 0.02, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "rope_scaling": None, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
        "use_cache": True, "torch_dtype": "float32", **special})
    write_json(new / "generation_config.json", {"do_sample": True, "temperature": 0.8, **special})
    write_json(new / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END, "unk_token": None,
        "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "added_tokens_decoder": {"0": {"content": END, "lstrip": False, "normalized": False, "rstrip": False,
                                       "single_word": False, "special": True}}})
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    for path in new.iterdir():
        path.chmod(0o644)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def save_checkpoint(path, **state):
    torch.save(state, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


# ---------------------------------------------------------------------------------------------------- training

class Stopwatch:
    """Counts the seconds of training. A step of more than five times the usual duration was a pause (a stopped process,
    a suspended machine) and counts as a usual step, so that the schedule does not jump."""

    def __init__(self, seconds=0.0):
        self.seconds, self.usual, self.ticks, self.last = seconds, None, 0, time.monotonic()

    def tick(self):
        now = time.monotonic()
        took, self.last, self.ticks = now - self.last, now, self.ticks + 1
        if self.ticks == 1:  # the compiler ran
            return
        took = min(took, 5 * (self.usual or took))
        self.usual = 0.9 * (self.usual or took) + 0.1 * took
        self.seconds += took

    def skip(self):
        """Excludes the time since the last tick."""
        self.last = time.monotonic()


class Threads:
    """Chooses the number of threads. All threads are fastest on an idle machine. If another program uses a core, every
    parallel loop waits for the thread on that core, and fewer threads are faster (measured next to a compiler: 1500
    tokens/s with two threads, twice that with one). So each number is tried for three steps, of which the first is
    not timed, and again every 60 steps."""

    def __init__(self, limit):
        self.limit = limit
        self.restart()

    def restart(self):
        """Must be called before the model is compiled for another shape, which must use all threads."""
        self.count, self.took = 0, {}
        self.begin_step()

    def begin_step(self):
        if self.count < 3 * self.limit:
            torch.set_num_threads(self.limit - self.count // 3)
        elif self.count == 3 * self.limit:
            torch.set_num_threads(min(self.took, key=self.took.get))
        self.began = time.monotonic()

    def end_step(self):
        if self.count < 3 * self.limit and self.count % 3:
            self.took.setdefault(self.limit - self.count // 3, 0.0)
            self.took[self.limit - self.count // 3] += time.monotonic() - self.began
        self.count += 1
        if self.count == 60:
            self.count, self.took = 0, {}


def draw_batch(streams, progress, ramp, rows, length, rng):
    names = list(streams)
    share = np.array([SOURCES[n][1] + (SOURCES[n][2] - SOURCES[n][1]) * min(progress / ramp, 1) for n in names])
    picks = rng.choice(len(names), size=rows, p=share / share.sum())
    batch = torch.from_numpy(np.stack([streams[names[i]].take(length) for i in picks]))
    return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


def train(args):
    torch.manual_seed(args.seed)
    torch._inductor.config.cpp.dynamic_threads = True
    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint, log_path = args.out / "checkpoint.pt", args.out / "loss.csv"

    documents = read_documents(args.data)
    saved = torch.load(checkpoint, weights_only=False) if checkpoint.exists() else None
    tokenizer = Tokenizer.from_str(saved["tokenizer"]) if saved else train_tokenizer(documents, args.vocab)
    streams = {name: Stream(encode(tokenizer, texts), args.seed * 10 + i)
               for i, (name, texts) in enumerate(documents.items())}
    raw = {name: (args.data / f).read_text(encoding="utf-8") for name, f in HELD_OUT.items()}
    held_out = {name: np.concatenate(encode(tokenizer, [t for t in text.split(END) if t.strip()]))
                for name, text in raw.items()}
    for name, stream in streams.items():
        size = sum(len(t.encode()) for t in documents[name])
        print(f"{name}: {len(stream.ids)} texts, {size} bytes, {stream.size} tokens, "
              f"{size / stream.size:.2f} bytes/token")

    model = Llama(args)
    optimizers = make_optimizers(model, args)
    print(f"parameters: {sum(p.numel() for p in model.parameters())}")
    step, tokens, watch, rng = 0, 0, Stopwatch(), np.random.default_rng(args.seed)
    if saved:
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        for name, state in saved["streams"].items():
            streams[name].load(state)
        step, tokens, watch.seconds = saved["step"], saved["tokens"], saved["seconds"]
        rng.bit_generator.state = saved["rng"]
        print(f"resumed at step {step}, {watch.seconds / 60:.1f} minutes in")
    run = torch.compile(model, dynamic=False) if args.compile else model
    log = open(log_path, "a", newline="")
    rows = csv.writer(log)
    if log.tell() == 0:
        rows.writerow(["step", "tokens", "minutes", "rate", "train_loss", "story_epochs", "stories", "fairytales"])

    def save():
        torch.set_num_threads(args.threads)
        losses = {n: held_out_loss(model, ids, args.bf16, rows=args.eval_rows)[0] for n, ids in held_out.items()}
        seen = streams["stories"].epoch + streams["stories"].at / streams["stories"].size
        rows.writerow([step, tokens, f"{watch.seconds / 60:.2f}", f"{rate(progress):.4f}",
                       f"{np.mean(recent[-50:]):.4f}" if recent else "", f"{seen:.2f}"]
                      + [f"{losses[n]:.4f}" for n in HELD_OUT])
        log.flush()
        export(model, tokenizer, args, args.out / "hf")
        save_checkpoint(checkpoint, model=model.state_dict(), optimizers=[o.state_dict() for o in optimizers],
                        streams={n: s.state() for n, s in streams.items()}, step=step, tokens=tokens,
                        seconds=watch.seconds, rng=rng.bit_generator.state, tokenizer=tokenizer.to_str())
        print(f"\n--- step {step}, {watch.seconds / 60:.1f} min, {tokens} tokens, {seen:.2f} story epochs, held out "
              + ", ".join(f"{n} {v:.4f}" for n, v in losses.items()))
        print(sample(model, tokenizer, seed=step), flush=True)
        threads.restart()

    threads, usual_length = Threads(args.threads), 0
    recent, progress, saved_at = [], watch.seconds / (60 * args.minutes), watch.seconds
    watch.skip()
    while progress < 1:
        length = CONTEXT // 2 if progress < args.short else CONTEXT  # short rows first, because their attention is cheaper
        if length != usual_length:
            usual_length = length
            threads.restart()
        threads.begin_step()
        for optimizer, peak in zip(optimizers, (args.lr, args.lr_embedding)):
            for group in optimizer.param_groups:
                group["lr"] = peak * rate(max(progress, 1e-3))
        x, y = draw_batch(streams, progress, args.ramp, args.batch // length, length, rng)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            loss = run(x, y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + x.numel()
        recent.append(loss.item())
        if not math.isfinite(recent[-1]):
            raise SystemExit(f"the loss at step {step} is {recent[-1]}")
        threads.end_step()
        watch.tick()
        progress = watch.seconds / (60 * args.minutes)
        if step % 20 == 0:
            print(f"step {step} {100 * progress:.1f}% loss {np.mean(recent[-20:]):.4f} "
                  f"{x.numel() / (watch.usual or 1):.0f} tokens/s, {torch.get_num_threads()} threads", flush=True)
        if watch.seconds - saved_at > 60 * args.every or (step == 60 and args.every < 60):
            save()
            saved_at = watch.seconds
            watch.skip()
    if not saved or step > saved["step"]:
        save()
    torch.set_num_threads(args.threads)
    for name, text in raw.items():
        report(model, tokenizer, f"{name} unchanged", text)
        report(model, tokenizer, f"{name} cleaned like the training text", END.join(map(clean, text.split(END))))


def report(model, tokenizer, name, text):
    """Separators between texts count as tokens but not as bytes."""
    texts = [t for t in text.split(END) if t.strip()]
    loss, count = held_out_loss(model, np.concatenate(encode(tokenizer, texts)), bf16=False)
    size = sum(len(t.encode()) for t in texts)
    print(f"held out, {name}: {loss:.4f} nats/token, perplexity {math.exp(loss):.3f} per token ({count} tokens), "
          f"{math.exp(loss * count / size):.4f} per byte, {loss * count / size / math.log(2):.4f} bits/byte "
          f"({size} bytes)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with text/ and eval/")
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoint.pt, loss.csv and hf/")
    parser.add_argument("--minutes", type=float, default=60, help="training time; pauses do not count")
    parser.add_argument("--every", type=float, default=5, help="minutes between checkpoints")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=3072)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--ffn", type=int, default=512)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=4096, help="tokens per step")
    parser.add_argument("--ramp", type=float, default=0.35, help="progress at which the sources reach their final shares")
    parser.add_argument("--short", type=float, default=0.6, help="fraction of the training that uses rows of half the context")
    parser.add_argument("--lr", type=float, default=0.02, help="peak learning rate of the matrices (Muon)")
    parser.add_argument("--lr-embedding", type=float, default=0.004, help="peak learning rate of the other weights (AdamW)")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--eval-rows", type=int, default=60, help="held-out windows measured at a checkpoint")
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=False,
                        help="autocast; measured 1.5 times slower than f32 on two cores without matrix units")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    args.head_dim = args.width // args.heads
    train(args)


if __name__ == "__main__":
    main()

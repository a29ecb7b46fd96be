#!/usr/bin/env python3
"""Distills a large model into a small one on the CPU: to repair a pruned model (scripts/train/prune.py), or for `--draft OUT`.

    python3 scripts/train/distill.py TARGET OUT --data ../shared/data --from PRUNED --minutes 8
    python3 scripts/train/distill.py TARGET OUT --data ../shared/data --width 96 --layers 2 --heads 3 --kv-heads 1 --ffn 256

TARGET, the large model, and PRUNED are models that scripts/train/prune.py can read. Without --from, the small model starts with
random numbers, TARGET's vocabulary, and one matrix for embedding and head. The loss is the mean of KL(target || small) over all
positions of a text, with whole distributions at temperature 1 (Hinton, Vinyals and Dean 2015). The tokens of the text are no
targets. OUT is a Hugging Face folder in f32 with TARGET's tokenizer.

--data FOLDER trains on the stories of the bundled model's training (scripts/train/train.py: CDLA-Sharing-1.0), without those that
overlap with the held-out ones. --text FILE trains on another text. Needs torch, transformers, safetensors, tokenizers, numpy and
gguf.

Not for: models that do not fit into memory in f32, GPUs.
"""
import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import llama_folder
import train
from llama_folder import fail


SIZES = {"width": 96, "layers": 2, "heads": 3, "kv_heads": 1, "ffn": 256}  # of a new model


def check(args):
    """Checks the arguments before any file is read."""
    for name, usual in SIZES.items():
        flag, value = "--" + name.replace("_", "-"), getattr(args, name)
        if value is None:
            setattr(args, name, usual)
        elif args.start:
            fail(f"{flag} is {value} together with --from, expected one of them: the model of --from has a size")
        elif value < 1:
            fail(f"{flag} is {value}, expected 1 or more")
    for flag, value in (("--minutes", args.minutes), ("--steps", args.steps), ("--batch", args.batch), ("--threads", args.threads),
                        ("--lr", args.lr), ("--lr-embedding", args.lr_embedding)):
        if value is not None and not 0 < value < math.inf:
            fail(f"{flag} is {value}, expected more than 0")
    if args.seed < 0:
        fail(f"--seed is {args.seed}, expected 0 or more")


def fresh(target, args):
    if args.width % args.heads or args.width // args.heads % 2:
        fail(f"--width is {args.width}, expected {args.heads} heads of an even number of channels")
    if args.heads % args.kv_heads:
        fail(f"--heads is {args.heads}, expected a multiple of --kv-heads {args.kv_heads}")
    c = target.config
    rope = {k: c[k] for k in ("rope_theta", "rope_scaling", "rope_parameters") if k in c}
    ends = {k: c[k] for k in ("bos_token_id", "eos_token_id") if k in c}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": c["vocab_size"], "hidden_size": args.width,
              "intermediate_size": args.ffn, "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
              "num_key_value_heads": args.kv_heads, "head_dim": args.width // args.heads, "hidden_act": "silu",
              "max_position_embeddings": c["max_position_embeddings"], "rms_norm_eps": c["rms_norm_eps"], **rope, "attention_bias": False,
              "mlp_bias": False, "tie_word_embeddings": True, "torch_dtype": "float32", **ends}
    small = llama_folder.LlamaFolder(config, {}, {})
    model = llama_folder.new_model(small.own_config("a new model"))
    into_residual = ("o_proj.weight", "down_proj.weight")  # 2 * layers such terms are added to the residual stream
    for name, p in model.named_parameters():
        if p.ndim == 2:
            torch.nn.init.normal_(p, std=0.02 / math.sqrt(2 * args.layers) if name.endswith(into_residual) else 0.02)
    return small, model


def divergence(target, small, ids):
    """Mean KL(target || small) in nats per token."""
    with torch.no_grad():
        want = F.log_softmax(target(ids, use_cache=False).logits.flatten(0, 1), -1)
    got = F.log_softmax(small(ids, use_cache=False).logits.flatten(0, 1), -1)
    return F.kl_div(got, want, reduction="sum", log_target=True) / len(want)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("out", metavar="OUT")
    texts = parser.add_mutually_exclusive_group(required=True)
    texts.add_argument("--data", type=Path, metavar="FOLDER", help="folder with text/ and eval/")
    texts.add_argument("--text", metavar="FILE")
    parser.add_argument("--from", dest="start", metavar="PRUNED", help="start with this model")
    for name, usual in SIZES.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, help=f"of a new model ({usual})")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=8)
    length.add_argument("--steps", type=int, help="stop after N steps instead of --minutes; the same command then writes the same folder")
    parser.add_argument("--batch", type=int, default=8, help="rows of 256 tokens per step (8)")
    parser.add_argument("--lr", type=float, default=0.01, help="peak learning rate of the matrices (Muon)")
    parser.add_argument("--lr-embedding", type=float, default=0.003, help="peak learning rate of the other weights (AdamW)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    check(args)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    llama_folder.expect_no(args.out)
    target = llama_folder.read(args.target)
    tokenizer = target.tokenizer(args.target)
    if args.start:
        small = llama_folder.read(args.start)
        if small.tokenizer(args.start).get_vocab() != tokenizer.get_vocab():
            fail(f"{args.start}: its vocabulary differs from that of {args.target}, expected the same")
        if small.config["vocab_size"] != target.config["vocab_size"]:
            fail(f"{args.start}: vocab_size is {small.config['vocab_size']}, expected {target.config['vocab_size']} as in {args.target}")
        model = small.model(args.start)
    else:
        small, model = fresh(target, args)
    if args.data:
        ids = train.encode(tokenizer, train.read_documents(args.data)["stories"])
    else:
        ids = [np.array(llama_folder.ids_of(tokenizer, args.text), dtype=np.int64)]
    stream = train.Stream(ids, args.seed)
    if stream.size < 256:
        fail(f"{args.text or args.data}: {stream.size} tokens, expected at least 256")
    large = target.model(args.target)
    model.train().requires_grad_(True)
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    optimizers = [train.Muon(matrices, lr=args.lr, weight_decay=0.01),
                  torch.optim.AdamW(others, lr=args.lr_embedding, betas=(0.9, 0.95), weight_decay=0.01)]
    print(f"{sum(p.numel() for p in model.parameters())} parameters to train, {target.parameters()} in {args.target}; "
          f"{stream.size} tokens of text", flush=True)
    start, step, losses = time.monotonic(), 0, []
    while (progress := step / args.steps if args.steps else (time.monotonic() - start) / (60 * args.minutes)) < 1:
        for optimizer, peak in zip(optimizers, (args.lr, args.lr_embedding)):
            for group in optimizer.param_groups:
                group["lr"] = peak * train.rate(max(progress, 1e-3))
        loss = divergence(large, model, torch.from_numpy(np.stack([stream.take(255) for _ in range(args.batch)])))
        if not math.isfinite(loss.item()):
            fail(f"the divergence at step {step} is {loss.item()}: try a smaller --lr; nothing was written")
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        losses.append(loss.item())
        if step % 50 == 0 or step == 1:
            print(f"step {step} {100 * progress:.0f}% KL {np.mean(losses[-50:]):.4f}", flush=True)
    tensors = {n: p.detach().float() for n, p in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    config = dict(small.config, torch_dtype="float32")
    config.pop("dtype", None)
    llama_folder.LlamaFolder(config, tensors, target.files).write(args.out)
    print(f"{args.out}: {step} steps of {args.batch * 256} tokens in {(time.monotonic() - start) / 60:.1f} minutes; "
          f"KL {np.mean(losses[:10]):.3f} in the first ten, {np.mean(losses[-50:]):.3f} in the last fifty")


if __name__ == "__main__":
    main()

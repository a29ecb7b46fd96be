#!/usr/bin/env python3
"""Makes a Llama-like model smaller by removing its least important layers, heads and feed-forward channels.

    python3 scripts/train/prune.py MODEL OUT --text FILE --layers 5 --heads 4 --ffn 384

MODEL is a Hugging Face folder (llama, mistral, qwen2, qwen3; float weights), or the bundled model as GGUF (`chaski convert
models/bundled/story.quipu story.gguf`). --layers, --heads and --ffn are the numbers to keep; without a flag all are kept. OUT is a
Hugging Face folder. The importance is measured on FILE:

  layers    Removed one at a time: the layer without which the loss on the text is lowest (Song et al. 2024, SLEB).
  heads     The mean over windows of |d loss / d switch|, with a switch that scales the head's output (Michel, Levy and Neubig
            2019). A key head is removed together with its query heads. Every layer keeps the same number, because chaski has one
            number for all layers.
  channels  Of the feed-forward: the root mean square of the channel times the norm of its column, which is its share of the
            output (like Wanda for single weights, Sun et al. 2023).

No weight is trained; scripts/train/distill.py does that. The same command writes the same folder. Needs torch, transformers,
safetensors, tokenizers and gguf.

Not for: models that do not fit into memory in f32, GPUs.
"""
import argparse
import contextlib
import math
import re

import torch
import torch.nn.functional as F

import llama_folder
from llama_folder import fail


def loss_of(model, window):
    """Mean loss in nats per token."""
    logits = model(window[None], use_cache=False).logits[0, :-1]
    return F.cross_entropy(logits, window[1:])


@torch.no_grad()
def mean_loss(model, windows):
    loss = sum(loss_of(model, w).item() for w in windows) / len(windows)
    return loss if math.isfinite(loss) else fail(f"the loss on the text is {loss}: the model's numbers are not finite")


class Without:
    """Disables a layer."""

    def __init__(self, layer):
        self.layer = layer

    def __enter__(self):
        self.handle = self.layer.register_forward_hook(
            lambda _, args, output: (args[0], *output[1:]) if isinstance(output, tuple) else args[0])

    def __exit__(self, *_):
        self.handle.remove()


def needless_layers(model, windows, count):
    """The indices of the `count` least important layers. Prints the losses."""
    layers, gone = model.model.layers, []
    loss = mean_loss(model, windows)
    with contextlib.ExitStack() as left_out:
        for _ in range(count):
            losses = {}
            for i in range(len(layers)):
                if i not in gone:
                    with Without(layers[i]):
                        losses[i] = mean_loss(model, windows)
            least = min(losses, key=losses.get)
            others = ", ".join(f"{i} {x:.3f}" for i, x in losses.items() if i != least)
            print(f"layer {least} is removed: the loss is {losses[least]:.3f} without it, {loss:.3f} with it (without another layer: {others})", flush=True)
            loss = losses[least]
            gone.append(least)
            left_out.enter_context(Without(layers[least]))
    return sorted(gone)


def importance(model, windows, heads):
    """The importance of the heads and of the channels of each layer: two lists of tensors."""
    layers, switches, handles = model.model.layers, {}, []
    of_heads, squares = [0] * len(layers), [0] * len(layers)

    def switch_heads(i):
        def before(_, args):
            switches[i] = torch.ones(heads, requires_grad=True)
            return ((args[0].unflatten(-1, (heads, -1)) * switches[i][:, None]).flatten(-2),)
        return before

    def add_squares(i):
        def before(_, args):
            squares[i] = squares[i] + args[0].detach().square().sum((0, 1))
        return before

    for i, layer in enumerate(layers):
        handles.append(layer.self_attn.o_proj.register_forward_pre_hook(switch_heads(i)))
        handles.append(layer.mlp.down_proj.register_forward_pre_hook(add_squares(i)))
    for window in windows:
        loss_of(model, window).backward()
        of_heads = [worth + switches[i].grad.abs() for i, worth in enumerate(of_heads)]
    for handle in handles:
        handle.remove()
    return of_heads, [square.sqrt() * layer.mlp.down_proj.weight.norm(dim=0) for square, layer in zip(squares, layers)]


def best(worth, count):
    """The indices of the `count` largest values, ascending. Of equal values the lower index comes first."""
    return sorted(sorted(range(len(worth)), key=lambda i: (-worth[i].item(), i))[:count])


def listed(numbers, limit=12):
    numbers = list(numbers)
    return ", ".join(map(str, numbers)) if len(numbers) <= limit else f"{len(numbers)} of them"


def lost(worth, kept):
    return f"{100 * (1 - worth[kept].sum() / worth.sum()).item():.1f}%"


def without_layers(folder, gone):
    old = folder.config["num_hidden_layers"]
    place = {i: n for n, i in enumerate(i for i in range(old) if i not in gone)}
    tensors = {}
    for name, value in folder.tensors.items():
        layer = re.match(r"(model\.layers\.)(\d+)(\..*)", name)
        if layer is None:
            tensors[name] = value
        elif int(layer[2]) in place:
            tensors[layer[1] + str(place[int(layer[2])]) + layer[3]] = value
    config = dict(folder.config, num_hidden_layers=len(place))
    if config.get("layer_types"):
        config["layer_types"] = [config["layer_types"][i] for i in place]
    if "max_window_layers" in config:
        config["max_window_layers"] = min(config["max_window_layers"], len(place))
    return llama_folder.LlamaFolder(config, tensors, folder.files)


def without_rows(folder, sizes, groups, channels):
    """Keeps in each layer these key heads with their query heads, and these channels."""
    tensors = dict(folder.tensors)
    rows = lambda kept, each: torch.cat([torch.arange(i * each, (i + 1) * each) for i in kept])
    for i, (kept, columns) in enumerate(zip(groups, channels)):
        of_kv, of_q, of_ffn = rows(kept, sizes.head_dim), rows(kept, sizes.group * sizes.head_dim), torch.tensor(columns)
        for part, index in {"self_attn.q_proj": of_q, "self_attn.k_proj": of_kv, "self_attn.v_proj": of_kv,
                            "mlp.gate_proj": of_ffn, "mlp.up_proj": of_ffn}.items():
            for end in ("weight", "bias"):
                if (name := f"model.layers.{i}.{part}.{end}") in tensors:
                    tensors[name] = tensors[name][index]
        for part, index in {"self_attn.o_proj": of_q, "mlp.down_proj": of_ffn}.items():
            name = f"model.layers.{i}.{part}.weight"
            tensors[name] = tensors[name][:, index]
    config = dict(folder.config, num_attention_heads=len(groups[0]) * sizes.group, num_key_value_heads=len(groups[0]),
                  head_dim=sizes.head_dim, intermediate_size=len(channels[0]))
    return llama_folder.LlamaFolder(config, tensors, folder.files)


class Sizes:
    def __init__(self, config):
        self.layers, self.heads, self.ffn = config["num_hidden_layers"], config["num_attention_heads"], config["intermediate_size"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.group = self.heads // self.kv_heads


def expect(args, sizes):
    for flag, kept, there in (("--layers", args.layers, sizes.layers), ("--heads", args.heads, sizes.heads), ("--ffn", args.ffn, sizes.ffn)):
        if kept is not None and not 1 <= kept <= there:
            fail(f"{flag} is {kept}, expected 1 to {there}, the number in the model")
    if args.heads is not None and args.heads % sizes.group:
        fail(f"--heads is {args.heads}, expected a multiple of {sizes.group}, the number of heads that share a key head")
    if (args.layers or sizes.layers, args.heads or sizes.heads, args.ffn or sizes.ffn) == (sizes.layers, sizes.heads, sizes.ffn):
        fail("nothing to remove: expected --layers, --heads or --ffn with less than the model has "
             f"({sizes.layers}, {sizes.heads} and {sizes.ffn})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--text", required=True, metavar="FILE", help="a typical text; importance is measured on its first tokens")
    parser.add_argument("--layers", type=int, metavar="N", help="layers to keep")
    parser.add_argument("--heads", type=int, metavar="N", help="heads to keep in each layer")
    parser.add_argument("--ffn", type=int, metavar="N", help="feed-forward channels to keep in each layer; best a multiple of 32")
    parser.add_argument("--tokens", type=int, default=16384, help="tokens of the text to use, in windows of 256 (16384)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    llama_folder.expect_no(args.out)
    folder = llama_folder.read(args.model)
    sizes = Sizes(folder.config)
    expect(args, sizes)
    few = dict(folder.config, head_dim=sizes.head_dim, num_attention_heads=args.heads or sizes.heads,
               num_key_value_heads=(args.heads or sizes.heads) // sizes.group)
    llama_folder.LlamaFolder(few, {}, {}).own_config(args.out)
    ids = torch.tensor(llama_folder.ids_of(folder.tokenizer(args.model), args.text)[:args.tokens])
    if len(ids) < 256:
        fail(f"{args.text}: {len(ids)} tokens, expected at least 256, and --tokens 256 or more")
    windows = list(ids[:len(ids) // 256 * 256].view(-1, 256))

    model, before = folder.model(args.model), folder.parameters()
    first_loss = mean_loss(model, windows)
    if (args.layers or sizes.layers) < sizes.layers:
        folder = without_layers(folder, needless_layers(model, windows, sizes.layers - args.layers))
        model = folder.model(args.model)
    if (args.heads or sizes.heads) < sizes.heads or (args.ffn or sizes.ffn) < sizes.ffn:
        heads, channels = importance(model, windows, sizes.heads)
        worth = [w.view(-1, sizes.group).sum(1) for w in heads]
        kept = [best(w, (args.heads or sizes.heads) // sizes.group) for w in worth]
        kept_channels = [best(w, args.ffn or sizes.ffn) for w in channels]
        for i, (w, k, c, kc) in enumerate(zip(worth, kept, channels, kept_channels)):
            gone = [h for g in range(sizes.kv_heads) if g not in k for h in range(g * sizes.group, (g + 1) * sizes.group)]
            parts = [f"heads {listed(gone)} are removed, {lost(w, k)} of the importance of heads"] if gone else []
            if len(kc) < sizes.ffn:
                parts.append(f"{sizes.ffn - len(kc)} channels are removed, {lost(c, kc)} of the importance of channels")
            print(f"remaining layer {i}: {'; '.join(parts)}")
        folder = without_rows(folder, sizes, kept, kept_channels)
    after = folder.parameters()
    loss = mean_loss(folder.model(args.out), windows)
    folder.write(args.out)
    print(f"{args.out}: {after} of {before} parameters remain ({100 * after / before:.1f}%); "
          f"loss on {len(windows)} x 256 tokens of the text {first_loss:.3f} before, {loss:.3f} now")


if __name__ == "__main__":
    main()

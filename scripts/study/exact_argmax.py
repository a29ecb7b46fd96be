#!/usr/bin/env python3
"""Measures how often a program's greedy token is the most probable token of exact arithmetic.

    exact_argmax.py MODEL.gguf [--text FILE] [--count 20] [--tokens 64] [--answers FILE]

Exact arithmetic is f32 by transformers with the file's weights, dequantized by the gguf package. Each token is judged after the tokens
before it, including the program's own tokens. FILE has a prompt a line, or a JSON object a line whose "turns" begin with the prompt.
--answers reads the token ids of another run, a line for each prompt, instead of running build/chaski (or CHASKI_BIN). For each token that
differs, the difference of the two exact logits is printed; in a close case it is some hundredths. Needs torch, transformers, accelerate
and gguf.

    exact_argmax.py MODEL.gguf --golden OUT.json [--text FILE]

writes the expected values of the cases "real/..." of tests/cli/real_test.cpp. For the prompts of this script it has the greedy tokens of exact
arithmetic, each with its margin over the second token. It also has the perplexity of the first two windows of 512 tokens of FILE, counted as
`chaski eval` does.
"""

import argparse
import json
import math
import os
import subprocess

import torch
import transformers

PROMPTS = [
    "The capital of France is",
    "def is_prime(n):\n",
    "Three things everybody should know about the Andes:\n1.",
    "Dear Anna,\n\nthank you for your letter. The weather here",
]
WINDOW = 512


def chaski(command, model, text, *flags):
    program = [os.environ.get("CHASKI_BIN", "build/chaski"), command, "-m", model, *flags]
    return subprocess.run(program, input=text, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def ids_of(model, text):
    return [int(word) for word in chaski("tokenize", model, text, "--ids").split()]


def answer_of(model, text, tokens):
    answer = chaski("run", model, text, "-n", str(tokens), "--temp", "0", "--ignore-end", "--json")
    return json.loads(answer)["answer_ids"]


def prompts_of(path, count):
    with open(path) as file:
        lines = file.read().splitlines()[:count]
    return [json.loads(line)["turns"][0] if line.startswith("{") else line for line in lines]


def reference_of(path):
    folder, name = os.path.split(os.path.abspath(path))
    return transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()


@torch.no_grad()
def logits_of(reference, ids, first):
    """One row for every place from `first` on: the exact logits of the token there."""
    return reference(torch.tensor([ids])).logits[0, first - 1 : -1]


def judge(reference, prompt, answer):
    rows = logits_of(reference, prompt + answer, len(prompt))
    gaps = [float(row.max() - row[token]) for row, token in zip(rows, answer)]
    return [gap for gap in gaps if gap > 0]


@torch.no_grad()
def path_of(reference, prompt, tokens):
    """Greedy tokens as [token, its margin over the second]. End tokens do not stop it."""
    path, past, ids = [], None, prompt
    for _ in range(tokens):
        out = reference(torch.tensor([ids]), past_key_values=past, use_cache=True)
        past, best = out.past_key_values, out.logits[0, -1].topk(2)
        ids = [int(best.indices[0])]
        path.append([ids[0], round(float(best.values[0] - best.values[1]), 4)])
    return path


def perplexity_of(reference, ids, bos):
    """The perplexity of the second halves of the first two windows."""
    surprise, count = 0.0, 0
    for start in (0, WINDOW):
        window = ids[start : start + WINDOW]
        given = window if bos is None else [bos] + window[1:]
        first = WINDOW // 2 + 1
        logs = torch.log_softmax(logits_of(reference, given, first).double(), dim=-1)
        surprise -= float(logs[range(WINDOW - first), window[first:]].sum())
        count += WINDOW - first
    return math.exp(surprise / count)


def golden(reference, options):
    places = [{"text": text, "ids": ids_of(options.model, text)} for text in PROMPTS]
    for place in places:
        place["path"] = path_of(reference, place["ids"], options.tokens)
    with open(options.text) as file:
        ids = ids_of(options.model, file.read())
    # A model with a BOS token has it before every window.
    bos = ids[0] if ids[0] == ids_of(options.model, "a")[0] else None
    out = {"perplexity": round(perplexity_of(reference, ids, bos), 4), "prompts": places}
    with open(options.golden, "w") as file:
        file.write(json.dumps(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", default="../shared/data/eval/mt_bench_question.jsonl")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--answers")
    parser.add_argument("--golden")
    options = parser.parse_args()
    reference = reference_of(options.model)
    if options.golden:
        return golden(reference, options)
    prompts = prompts_of(options.text, options.count)
    if options.answers:
        with open(options.answers) as file:
            answers = [[int(word) for word in line.split()] for line in file]
    else:
        answers = [answer_of(options.model, prompt, options.tokens) for prompt in prompts]
    other, count = [], 0
    for prompt, answer in zip(prompts, answers):
        other += judge(reference, ids_of(options.model, prompt), answer)
        count += len(answer)
    print(f"{count - len(other)} of {count} tokens are the exact argmax, {100 * (1 - len(other) / count):.2f}%; the others are lower by")
    print(" ".join(f"{gap:.3f}" for gap in sorted(other)))


if __name__ == "__main__":
    main()

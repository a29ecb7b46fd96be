#!/usr/bin/env python3
"""Checks that the same prompt, settings and seed give the same bytes with every drafter and any number of threads.

    identity.py [--prompts 100] [--tokens 128] [-m MODEL] [--draft MODEL] [--others 3] [--minutes M] [--data ../shared/data/eval]

The prompts are taken from mt_bench, spec_bench, gsm8k and HumanEval in turn. Each runs with `--draft none -t 1`, greedy and at temperature
0.8, and then with every setting of ways_of(). Tokens, text and the reason of the end must be the same. Prints every difference and then the
counts. The exit status is 1 if there was a difference.
"""
import argparse
import gzip
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

FILES = {"mt_bench_question.jsonl": lambda o: o["turns"][0], "spec_bench_question.jsonl": lambda o: o["turns"][0],
         "gsm8k_test.jsonl": lambda o: o["question"], "HumanEval.jsonl.gz": lambda o: o["prompt"]}


def prompts_of(folder, most):
    """The prompts of the files in turn, each text once."""
    lists = []
    for name, text_of in FILES.items():
        path = os.path.join(folder, name)
        with (gzip.open if name.endswith(".gz") else open)(path, "rt") as file:
            lists.append([(name.split(".")[0].split("_question")[0].split("_test")[0], text_of(json.loads(line))) for line in file])
    turns = itertools.chain.from_iterable(itertools.zip_longest(*lists))
    return list({text: (name, text) for name, text in filter(None, turns)}.values())[:most]


def ways_of(draft, others, folder):
    """Settings that must not change the answer. The last two belong together: the first stores its answer, the second reads it."""
    kept = ["--answer-cache", os.path.join(folder, "kept")]
    ways = {"none, 2 threads": ["--draft", "none", "-t", "2"], "auto": ["--draft", "auto"],
            **{f"ngram, {n} draft tokens": ["--draft", "ngram", "--draft-len", str(n)] for n in (1, 3, 7, 15)},
            "prompt from a file": ["--draft", "none", "--cache", os.path.join(folder, "prompt.kv")]}
    if others:
        ways[f"with {others} other answers"] = ["--answers", str(others + 1)]
    if draft:
        ways["model"] = ["--draft", draft, "-t", "2"]
        ways["model, 3 draft tokens"] = ["--draft", draft, "--draft-len", "3"]
    return {**ways, "stored answer": kept, "cached answer": kept}


def say(options, prompt_file, temperature, more):
    command = [options.chaski, "run", "-q", "--json", "-f", prompt_file, "-n", str(options.tokens), "--seed", str(options.seed), "--temp", temperature]
    command += (["-m", options.model] if options.model else []) + more
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 7:
        return None  # longer than the context
    if done.returncode != 0:
        sys.exit(f"identity.py: {' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    return said[0] if isinstance(said, list) else said


def main():
    parser = argparse.ArgumentParser(description="checks that drafters and threads do not change a byte")
    parser.add_argument("--prompts", type=int, default=100, metavar="N")
    parser.add_argument("--tokens", type=int, default=128, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-m", "--model", default="", help="default: the bundled model")
    parser.add_argument("--draft", default="", metavar="MODEL", help="a smaller model of the same vocabulary")
    parser.add_argument("--others", type=int, default=0, metavar="N", help="also as the first of N + 1 answers that are generated together")
    parser.add_argument("--chars", type=int, default=10**6, metavar="N", help="maximum length of a prompt")
    parser.add_argument("--minutes", type=float, default=10**6, metavar="M", help="start no prompt after M minutes")
    parser.add_argument("--data", default=os.path.join(os.path.dirname(__file__), "../../../shared/data/eval"))
    parser.add_argument("--chaski", default=os.path.join(os.path.dirname(__file__), "../../build/chaski"))
    options = parser.parse_args()
    start = time.time()
    done = compared = different = tokens = drafted = accepted = too_long = 0
    with tempfile.TemporaryDirectory() as folder:
        prompt_file = os.path.join(folder, "prompt")
        ways = ways_of(options.draft, options.others, folder)
        for name, text in prompts_of(options.data, options.prompts):
            if time.time() - start > 60 * options.minutes:
                break
            with open(prompt_file, "w") as file:
                file.write(text[:options.chars])
            for temperature in ("0", "0.8"):
                want = say(options, prompt_file, temperature, ["--draft", "none", "-t", "1"])
                if want is None:
                    too_long += 1
                    break
                tokens += want["answer_tokens"]
                for way, flags in {**ways, **({"one beam": ["--beam", "1"]} if temperature == "0" else {})}.items():
                    got = say(options, prompt_file, temperature, flags)
                    compared += 1
                    if way == "cached answer" and not got["cached"]:
                        sys.exit(f"identity.py: the answer to {text[:60]!r} was not stored")
                    drafted += got["drafted_tokens"]
                    accepted += got["accepted_tokens"]
                    if any(got[field] != want[field] for field in ("answer_ids", "text", "finish")):
                        different += 1
                        print(f"DIFFERENT: {name}, temperature {temperature}, {way}: {text[:60]!r}", flush=True)
            else:
                done += 1
    print(f"{done} prompts ({too_long} more were longer than the context), {tokens} tokens, {compared} texts compared "
          f"({drafted} draft tokens, {accepted} accepted): {different} differ; {time.time() - start:.0f} s")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()

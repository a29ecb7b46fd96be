#!/usr/bin/env python3
"""Kills `chaski batch` at random moments and continues it, and compares the results with those of
one run without a kill. Ends with status 1 if a line is lost, doubled or different.

    scripts/study/batch_kills.py [--kills 100] [--lines 200] [--jobs 8] [-m MODEL]
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--kills", type=int, default=100)
parser.add_argument("--lines", type=int, default=200)
parser.add_argument("--jobs", default="8")
parser.add_argument("-m", default="models/bundled/story.quipu")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
random.seed(args.seed)
chaski = os.environ.get("CHASKI_BIN", "build/chaski")
openings = ["Once upon a time", "The cat", "Lily and Mom", "A dog saw"]


def command(folder, out, *more):
    return [chaski, "batch", "-q", "-m", args.m, f"{folder}/in", out, "--jobs", args.jobs, *more]


with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/in", "w") as requests:
        for i in range(args.lines):
            line = {"prompt": random.choice(openings), "seed": i, "temperature": 0.8,
                    "max_tokens": random.randint(1, 60)}
            print(json.dumps(line), file=requests)
    start = time.time()
    subprocess.run(command(folder, f"{folder}/whole"), check=True)
    seconds = time.time() - start
    whole = open(f"{folder}/whole").read()
    differing = kills = runs = 0
    while kills < args.kills:
        runs += 1
        unordered = ["--unordered"] if runs % 2 else []
        out = f"{folder}/out{runs}"
        while kills < args.kills:
            process = subprocess.Popen(command(folder, out, *unordered))
            try:
                # Several kills in the time of one run.
                process.wait(random.uniform(0, seconds / 3))
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
        subprocess.run(command(folder, out, *unordered), check=True)
        got, want = open(out).read().splitlines(), whole.splitlines()
        if unordered:
            got, want = sorted(got), sorted(want)
        differing += got != want
    print(f"{kills} kills in {runs} batches of {args.lines} lines: "
          f"{differing} batches with a lost, doubled or different line")
    sys.exit(differing > 0)

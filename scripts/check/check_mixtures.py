#!/usr/bin/env python3
"""Compares the formats of `chaski quantize IN OUT MIXTURE` with those of llama-quantize.

    python3 scripts/check/check_mixtures.py LLAMA_QUANTIZE [MODEL ...]

For the GGUF file of each golden model (or of the named ones), and for each mixture of chaski, compares the format of every
tensor with `LLAMA_QUANTIZE --dry-run`. Prints the differences, and the files that one of the two refuses. Fails if there is
a difference, or nothing to compare. Needs the gguf package and a build of llama.cpp (tried: b11739).
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gguf import GGUFReader

MIXTURES = ("Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_K_S", "Q4_K_M", "Q4_1", "Q5_0",
            "Q5_K_S", "Q5_K_M", "Q5_1", "Q6_K", "Q8_0", "F16", "BF16", "F32")
CHASKI = os.environ.get("CHASKI_BIN", "build/chaski")


def of_llama(program, model, mixture):
    """{tensor: format}, or the line with which it refuses."""
    done = subprocess.run([program, "--dry-run", model, mixture], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode:
        return lines[-1]
    rows = [re.match(r"\[ *\d+/ *\d+\] +(\S+) +- \[.*type = +(\S+), size = .*?(?:-> .*\((\S+)\))?$", line) for line in lines]
    return {row[1]: (row[3] or row[2]).lower() for row in rows if row}


def of_chaski(model, mixture, out):
    done = subprocess.run([CHASKI, "quantize", model, out, mixture, "--fast", "-q"], capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    return {tensor.name: tensor.tensor_type.name.lower() for tensor in GGUFReader(out).tensors}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    models = sorted(Path("tests/golden/models").glob("*/model.gguf"))
    equal = differ = 0
    refused = {}
    for model in models:
        name = model.parent.name
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        for mixture in MIXTURES:
            theirs = of_llama(sys.argv[1], model, mixture)
            with tempfile.TemporaryDirectory() as folder:
                ours = of_chaski(model, mixture, f"{folder}/out.gguf") if isinstance(theirs, dict) else {}
            if isinstance(theirs, str) or isinstance(ours, str):
                refused.setdefault(name, ours if isinstance(ours, str) else theirs)
                continue
            if not theirs.keys() & ours.keys():
                sys.exit(f"check_mixtures: {name} {mixture}: no tensor that both list, expected the lines of {sys.argv[1]} --dry-run")
            # llama.cpp writes weights that chaski does not keep, because no model reads them.
            wrong = [f"{k} {ours[k]}, expected {v}" for k, v in theirs.items() if k in ours and ours[k] != v]
            equal, differ = equal + (not wrong), differ + bool(wrong)
            if wrong:
                print(f"{name} {mixture}: {'; '.join(wrong)}")
    for name, line in refused.items():
        print(f"{name} is refused: {line}")
    print(f"{equal} files are equal, {differ} differ, {len(refused)} models are refused")
    if not equal + differ:
        sys.exit("check_mixtures: nothing was compared, expected names of tests/golden/models with a model.gguf"
                 " that both programs can read")
    sys.exit(differ > 0)


main()

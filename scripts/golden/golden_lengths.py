#!/usr/bin/env python3
"""Golden logits of models whose layers remember in a fixed space, after texts of 1, 63, 64, 65, 300 and 1000 tokens.

    python3 scripts/golden/golden_lengths.py tests/golden [--only MODEL...]

Writes lengths.json and lengths.f32 into the folders of these models, which must be there. Each length is a call of its own,
because transformers computes texts in chunks of 64 positions, of which the last one may be filled up.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import golden_based
import golden_plamo2
import golden_recurrent
import golden_rwkv
from golden_weights import load_folder, run, some_tokens, write_json

OWN_TWINS = (golden_rwkv, golden_plamo2, golden_based)
LENGTHS = [1, 63, 64, 65, 300, 1000]


def logits_after(folder, tokens):
    """The last logits after each length."""
    for twin in OWN_TWINS:
        if (name := folder.name) in twin.MODELS:
            return twin.logits(name, twin.weights_of(name), tokens)[[n - 1 for n in LENGTHS]]
    model = load_folder(folder).double()
    return np.stack([run(model, tokens[:n])[-1] for n in LENGTHS])


def write_lengths(folder):
    vocab = json.loads((folder / "golden.json").read_text())["vocab"]
    tokens = some_tokens(f"{folder.name}/lengths", LENGTHS[-1], vocab)
    logits = logits_after(folder, tokens)
    assert logits.shape == (len(LENGTHS), vocab)
    logits.astype("<f4").tofile(folder / "lengths.f32")
    write_json(folder / "lengths.json", {"lengths": LENGTHS, "vocab": vocab, "context": LENGTHS[-1], "tokens": tokens})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--only", metavar="MODEL", nargs="+", help="make only the files of these models")
    args = parser.parse_args()
    for name in args.only or [*golden_recurrent.MODELS, *(name for twin in OWN_TWINS for name in twin.MODELS)]:
        write_lengths(args.out / "models" / name)
        print(name, file=sys.stderr)


if __name__ == "__main__":
    main()

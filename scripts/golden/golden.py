#!/usr/bin/env python3
"""Makes tests/golden: results of other programs, with which our tests compare chaski's.

    python3 scripts/golden/golden.py tests/golden [--data ../shared/data] [--only MODEL]

The logits come from Hugging Face transformers; the unpacked blocks and the GGUF files come from the gguf package. Neither
shares code with chaski. Needs torch, transformers, safetensors, gguf, bitsandbytes and numpy. The test suite needs none of
them, because the results are committed. Random numbers are seeded by the name of the model or file, so that a new model
does not change the others. tests/golden/README.md describes the files.

Not for: tokenizers, speed, trained models.
"""

import argparse
import sys
from pathlib import Path

import golden_blocks
import golden_models
import golden_packed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with models/")
    parser.add_argument("--only", choices=golden_models.MODELS, metavar="MODEL", help="make only this tiny random model")
    args = parser.parse_args()

    if args.only:
        golden_models.write_random_model(args.out / "models", args.only)
        return
    for name in golden_models.MODELS:
        golden_models.write_random_model(args.out / "models", name)
    golden_blocks.write_blocks(args.out / "blocks")
    golden_blocks.write_gguf_samples(args.out / "gguf")
    golden_blocks.write_bitnet_sample(args.out / "gguf")
    golden_packed.write_packed(args.out / "packed")
    if (args.data / "models").is_dir():
        golden_models.write_shared_models(args.out / "models", args.data / "models")
    else:  # the shared models may not be redistributed, so a clone does not have them
        print(f"golden: {args.data}/models is missing: the logits of the shared models are not changed", file=sys.stderr)


if __name__ == "__main__":
    main()

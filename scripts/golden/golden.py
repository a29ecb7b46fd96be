#!/usr/bin/env python3
"""Makes tests/golden: what other people's programs compute, for our tests to agree with.

    python3 scripts/golden/golden.py tests/golden [--data ../shared/data] [--only MODEL]

The logits come from Hugging Face transformers, the unpacked blocks and the GGUF files from the gguf package: neither
shares a line with chaski, which is the point. Needs torch, transformers, safetensors, gguf, bitsandbytes and numpy; the suite
itself needs none of them, because the results are committed. Every random number is seeded by the name of what it is for, so
adding a model moves no other. What each file holds is told in tests/golden/README.md.

Not for: tokenizers (no text here), speed, or anything trained.
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
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds models/")
    parser.add_argument("--only", choices=golden_models.MODELS, metavar="MODEL", help="just this tiny random model")
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
    else:  # the shared models may not be given away, so a clone is without them
        print(f"golden: no {args.data}/models: the logits of the shared models are left as they are", file=sys.stderr)


if __name__ == "__main__":
    main()

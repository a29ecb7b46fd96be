#!/usr/bin/env python3
"""Makes tests/golden/typeseg.json: the classes of characters by a trained Mamba and its own numpy reference.

    python3 scripts/golden/golden_typeseg.py tests/golden MODELS_DIR

MODELS_DIR has typeseg-mamba: the weights mamba_al.npz and the reference _mamba_kernel.py of the package typeseg. Needs numpy.
"""

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np

TEXTS = [
    'def main():\n    print("hello")\n\n\nif __name__ == "__main__":\n    main()\n',
    '{"name": "Peru", "cities": ["Lima", "Cusco"], "area": 1285216}\nThe capital of Peru is Lima, a city near the ocean.\n',
    "SELECT name, area FROM countries WHERE area > 1000 ORDER BY area DESC;\n#include <stdio.h>\nint main(void) { return 0; }\n",
    "<html><body><p>It was a dark night.</p></body></html>\nbody { margin: 0; color: #333 }\n",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("models", type=Path, metavar="MODELS_DIR")
    args = parser.parse_args()
    folder = args.models / "typeseg-mamba"
    spec = importlib.util.spec_from_file_location("kernel", folder / "_mamba_kernel.py")
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    weights = {k.replace("__", "/"): v.astype(np.float32) for k, v in np.load(folder / "mamba_al.npz").items()}
    cases = []
    for text in TEXTS:
        logits = kernel.mamba_forward(np, weights, np.frombuffer(text.encode(), np.uint8))
        cases.append({"text": text, "classes": logits.argmax(1).tolist(), "last": [round(float(x), 5) for x in logits[-1]]})
    lines = ",\n".join(json.dumps(c) for c in cases)
    (args.out / "typeseg.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Renders the chat templates of tests/golden/templates by transformers' own code, for ours to agree with.

    python3 scripts/golden_templates.py tests/golden/templates

Reads templates.txt (each behind a line "===== name") and conversations.json, writes rendered.json: for each template the texts
of all conversations, null where Python ends with an error. The templates are written for this test, in the style of the known
families; the clock stands still. Needs transformers and jinja2. With --model FILE.gguf ... prints what models' own templates
make of the same conversations, in the same form (tests/template_test.cpp says when that is wanted).
"""

import argparse
import datetime
import json
import sys
from pathlib import Path

from transformers.utils import chat_template_utils


class Standing(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 5, 14, 7, 9)


chat_template_utils.datetime = Standing


def rendered(template, conversation):
    conversation = {key: value for key, value in conversation.items() if key != "what"}
    variables = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", **conversation}
    try:
        return chat_template_utils._compile_jinja_template(template).render(**variables)
    except Exception:
        return None


def own_templates(path):
    out = {}
    for part in path.read_text(encoding="utf-8").split("===== ")[1:]:
        name, text = part.split("\n", 1)
        out[name] = text
    return out


def model_template(path):
    import gguf

    return gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--model", nargs="+", default=[], metavar="GGUF")
    args = parser.parse_args()
    conversations = json.loads((args.folder / "conversations.json").read_text(encoding="utf-8"))
    if args.model:
        templates = {path: model_template(path) for path in args.model}
    else:
        templates = own_templates(args.folder / "templates.txt")
    texts = {name: [rendered(template, c) for c in conversations] for name, template in templates.items()}
    out = json.dumps(texts, ensure_ascii=False, indent=0) + "\n"
    if args.model:
        sys.stdout.write(out)
    else:
        (args.folder / "rendered.json").write_text(out, encoding="utf-8")


if __name__ == "__main__":
    main()

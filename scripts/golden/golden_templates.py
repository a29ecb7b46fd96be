#!/usr/bin/env python3
"""Renders the chat templates of tests/golden/templates with transformers, for comparison with chaski.

    python3 scripts/golden/golden_templates.py tests/golden/templates

Reads templates.txt (each template after a line "===== name") and conversations.json. Writes rendered.json: for each template
the texts of all conversations, null if Python raises an error. The templates are written for this test in the style of the
known families; the clock is fixed. Needs transformers and jinja2.

With --models MODELS, a folder of GGUF files, the models' own templates are rendered too. Templates and texts are written to
MODELS/rendered_templates.json, which tests/text/template_test.cpp also reads. They may not be redistributed, so they stay there.
"""

import argparse
import datetime
import json
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

    field = gguf.GGUFReader(path).fields.get("tokenizer.chat_template")
    return field.contents() if field else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--models", type=Path, metavar="MODELS")
    args = parser.parse_args()
    conversations = json.loads((args.folder / "conversations.json").read_text(encoding="utf-8"))

    def all_rendered(template):
        return [rendered(template, conversation) for conversation in conversations]

    if args.models:
        templates = {path.name: model_template(path) for path in sorted(args.models.glob("*.gguf"))}
        out = {name: {"template": t, "rendered": all_rendered(t)} for name, t in templates.items() if t}
        path = args.models / "rendered_templates.json"
    else:
        out = {name: all_rendered(t) for name, t in own_templates(args.folder / "templates.txt").items()}
        path = args.folder / "rendered.json"
    path.write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

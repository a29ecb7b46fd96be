#!/usr/bin/env python3
"""Checks the Markdown pages: links lead to files and headings that exist, and paths exist.

    check_links.py [PAGE.md...]      without pages: every page that git tracks

A path is a word in backticks that has a slash or a file's ending. Exits with 1 if one is missing.
"""
import os
import re
import subprocess
import sys

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\s]+)`")
ENDING = re.compile(r"^[\w./-]+\.(h|cpp|cu|cuh|py|sh|md|svg|list|json|csv|session)$")
FOLDERS = ("", "engine/", "ggml-like-tensor/", "cuda/", "main/", "models/", "quant/", "scripts/golden/", "scripts/train/")


def without_code(text):
    """The text without blocks of code, which are indented by four columns after an empty line."""
    kept, code, before = [], False, ""
    for line in text.split("\n"):
        code = line.startswith("    ") and (code or not before.strip())
        kept.append("" if code else line)
        before = line
    return "\n".join(kept)


def anchors(path):
    names = set()
    with open(path) as file:
        for line in file:
            if line.startswith("#"):
                title = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
                names.add(title.replace(" ", "-"))
    return names


def exists(path, tracked):
    return any(f"{folder}{path.rstrip('/')}" in tracked for folder in FOLDERS)


def main():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    tracked = set(listed) | {os.path.dirname(f) for f in listed}
    tracked |= {os.path.dirname(f) for f in tracked}
    names = {os.path.basename(f) for f in listed}
    pages = sys.argv[1:] or [f for f in listed if f.endswith(".md") and not f.startswith("tests/fuzz")]
    bad = 0
    for page in pages:
        with open(page) as file:
            text = without_code(file.read())
        for target in LINK.findall(text):
            if re.match(r"https?:", target):
                continue
            path, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(file):
                print(f"{page}: link to {target}: {file} does not exist")
                bad = 1
            elif anchor and anchor not in anchors(file):
                print(f"{page}: link to {target}: {file} has no such heading")
                bad = 1
        for word in CODE.findall(text):
            if not ENDING.match(word) or "../shared" in word or ("/" not in word and word.endswith(".json")):
                continue
            if not exists(word, tracked) and ("/" in word or word not in names):
                print(f"{page}: {word} does not exist")
                bad = 1
    sys.exit(bad)


if __name__ == "__main__":
    main()

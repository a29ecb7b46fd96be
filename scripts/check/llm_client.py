#!/usr/bin/env python3
"""Checks chaski serve with PyPI's llm, as docs/serving-recipes.md sets it up: llm_client.py CHASKI.

Chat, streams, tools, structured output, a conversation and the error of an unknown model. llm has no
embeddings for servers of this kind. Texts are compared with those of chaski chat. Skipped if the
package is not installed.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from client_inputs import QUESTION, TEMPLATE

LLM = shutil.which("llm", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
if not LLM:
    print("SKIPPED: llm_client.py: llm is not installed (pip install llm)")
    sys.exit(0)

CHASKI = sys.argv[1] if len(sys.argv) > 1 else "build/chaski"
MODEL = sys.argv[2] if len(sys.argv) > 2 else "models/bundled/story.quipu"
MODELS = """- model_id: chaski
  model_name: story
  api_base: {address}/v1
  supports_schema: true
  supports_tools: true
- model_id: wrong
  model_name: none
  api_base: {address}/v1
"""


def llm(folder, *arguments, expect=0):
    environment = {**os.environ, "LLM_USER_PATH": folder}
    done = subprocess.run([LLM, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == expect, (arguments, done)
    return done.stdout if expect == 0 else done.stderr


def check(folder, template):
    command = [CHASKI, "chat", "-m", MODEL, "-p", QUESTION, "-n", "24", "--seed", "5",
               "--chat-template", template, "-q", "--json"]
    text = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[
        "text"]
    settings = ["-m", "chaski", "-o", "seed", "5", "-o", "max_tokens", "24"]
    for stream in ([], ["--no-stream"]):
        assert llm(folder, QUESTION, *settings, *stream).rstrip("\n") == text.rstrip("\n")
    assert llm(folder, "And then?", "-c", *settings[2:])  # the conversation goes on
    formed = llm(folder, "Is a cat an animal?", *settings, "--schema",
                 json.dumps({"type": "object", "properties": {"a": {"type": "boolean"}},
                             "required": ["a"], "additionalProperties": False}))
    assert formed.strip() == "" or formed.lstrip().startswith("{"), formed
    # The model decides whether it calls the function; the request with tools must be answered.
    llm(folder, "What is the weather in Lima?", *settings, "--functions",
        'def weather(city: str) -> str:\n    "The weather of a city"\n    return "Sunny"')
    error = llm(folder, QUESTION, "-m", "wrong", expect=1)
    assert "expected story" in error, error


def main():
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "template.jinja"
        template.write_text(TEMPLATE)
        server = subprocess.Popen(
            [CHASKI, "serve", "-m", MODEL, "--port", "0", "--alias", "story", "--no-log", "-q",
             "--chat-template", str(template)], stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()
            models = Path(folder) / "extra-openai-models.yaml"
            models.write_text(MODELS.format(address=address))
            check(folder, str(template))
        finally:
            server.terminate()
            server.wait()
    print("llm: chat, streams, a conversation, tools, structured output and errors hold")


main()

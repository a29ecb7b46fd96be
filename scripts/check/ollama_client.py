#!/usr/bin/env python3
"""Checks chaski serve with PyPI's ollama package: ollama_client.py CHASKI [MODEL].

Chat, generation, streams, tools, lists of models, embeddings, errors and a timeout. Texts are
compared with those of chaski chat and run. Tools are checked only if the model's chat template shows them. Skipped if the
package is not installed.
"""
import importlib.metadata
import json
import subprocess
import sys
import time

from client_inputs import EMBEDDED, ENDLESS, TIMEOUT, embedding_server, expect_freed, expect_unit

try:
    import httpx  # of ollama
    import ollama
except ImportError:
    print("SKIPPED: ollama_client.py: the ollama package is not installed (pip install ollama)")
    sys.exit(0)

CHASKI = sys.argv[1] if len(sys.argv) > 1 else "build/chaski"
MODEL = sys.argv[2] if len(sys.argv) > 2 else "models/bundled/story.quipu"
QUESTION = [{"role": "user", "content": "Tell me of a cat."}]
WEATHER = [{"role": "user", "content": "What is the weather in Lima?"}]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}]


def alone(*arguments):
    return json.loads(subprocess.run([CHASKI, *arguments, "-m", MODEL, "-q", "--json"], check=True,
                                     capture_output=True, text=True).stdout)["text"]


def wait_until_loaded(client):
    while True:
        try:
            return client.list().models[0].model
        except ollama.ResponseError as error:
            if error.status_code != 503:
                raise
            time.sleep(0.1)


def check_chat(client, model):
    settings = {"model": model, "messages": QUESTION, "options": {"seed": 5, "num_predict": 24}}
    text = alone("chat", "-p", QUESTION[0]["content"], "-n", "24", "--seed", "5")
    answer = client.chat(**settings, keep_alive="5m")
    assert answer.message.content == text, (answer, text)
    assert answer.done and answer.done_reason in ("length", "stop")
    assert answer.eval_count > 0 and answer.eval_duration > 0 and answer.total_duration > 0
    parts = list(client.chat(**settings, stream=True))
    assert "".join(part.message.content for part in parts) == text, parts
    assert parts[-1].done and not parts[0].done
    formed = client.chat(model=model, messages=QUESTION, options={"seed": 5}, format={
        "type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
        "additionalProperties": False})
    assert "a" in json.loads(formed.message.content)


def check_generate(client, model):
    text = alone("run", "-p", "Once upon a time", "-n", "20", "--seed", "3")
    settings = {"model": model, "prompt": "Once upon a time", "raw": True,
                "options": {"seed": 3, "num_predict": 20}}
    answer = client.generate(**settings)
    assert answer.response == text, (answer, text)
    assert "".join(part.response for part in client.generate(**settings, stream=True)) == text
    assert client.generate(model=model).done_reason == "load"


def check_tools(client, model):
    try:
        answer = client.chat(model=model, messages=WEATHER, tools=TOOLS,
                             options={"seed": 1, "num_predict": 80})
    except ollama.ResponseError as error:
        assert error.status_code == 400, error
        print("ollama: the model's chat template shows no tools, so calls were not checked")
        return
    for call in answer.message.tool_calls or []:
        assert isinstance(call.function.arguments, dict)
    calls = [{"function": {"name": "get_weather", "arguments": {"city": "Lima"}}}]
    more = client.chat(model=model, tools=TOOLS, options={"num_predict": 20}, messages=WEATHER + [
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "tool_name": "get_weather", "content": "Sunny"}])
    assert more.done


def check_models(client, model):
    one = client.list().models[0]
    assert one.model == model and one.size > 0 and one.modified_at.year > 2000
    assert client.ps().models[0].model == model
    assert client.show(model).modelinfo["general.architecture"]


def check_errors(client, model):
    def expect(status, says, call):
        try:
            call()
        except ollama.ResponseError as error:
            assert error.status_code == status and says in error.error, (error, status)
            return
        raise AssertionError(f"expected status {status}")

    expect(404, "none", lambda: client.chat(model="none", messages=QUESTION))
    expect(400, "options.temperature", lambda: client.chat(
        model=model, messages=QUESTION, options={"temperature": -1}))
    expect(400, "options.num_ctx", lambda: client.chat(
        model=model, messages=QUESTION, options={"num_ctx": 100000000}))
    expect(400, "embeddings", lambda: client.embed(model=model, input="x"))
    expect(501, "chaski pull smollm2", lambda: client.pull("smollm2"))
    expect(501, "rm", lambda: client.delete(model))


def check_embeddings(address):
    client = ollama.Client(host=address)
    answer = client.embed(model="story", input=EMBEDDED)
    vectors = [list(vector) for vector in answer.embeddings]
    expect_unit(vectors)
    assert answer.prompt_eval_count > 10
    assert list(client.embed(model="story", input=EMBEDDED[1]).embeddings[0]) == vectors[1]
    assert list(client.embeddings(model="story", prompt=EMBEDDED[1]).embedding) == vectors[1]


def check_timeout(address):
    try:
        ollama.Client(host=address, timeout=TIMEOUT).generate(
            model="story", prompt="Once", raw=True, options={"num_predict": -1, **ENDLESS})
    except httpx.TimeoutException:
        return expect_freed(address)
    raise AssertionError("expected an error: the answer has no end")


def main():
    server = subprocess.Popen([CHASKI, "serve", "-m", MODEL, "--port", "0", "--no-log", "-q"],
                              stdout=subprocess.PIPE, text=True)
    try:
        client = ollama.Client(host=server.stdout.readline().strip())
        model = wait_until_loaded(client)
        for check in (check_chat, check_generate, check_tools, check_models, check_errors):
            check(client, model)
    finally:
        server.terminate()
        server.wait()
    with embedding_server(CHASKI, MODEL) as address:
        check_embeddings(address)
        check_timeout(address)
    version = importlib.metadata.version("ollama")
    print(f"ollama {version}: chat, generation, tools, lists of models, embeddings, errors and a "
          "timeout hold")


main()

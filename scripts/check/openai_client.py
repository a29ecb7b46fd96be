#!/usr/bin/env python3
"""Checks chaski serve with PyPI's openai package: openai_client.py CHASKI [MODEL].

Chat, completions, streams, tools, responses, embeddings, errors and timeouts. Texts are compared with
those of chaski chat and run. Tools are checked only if the model's chat template shows them. Skipped if the package is
not installed.
"""
import json
import subprocess
import sys
from array import array

from client_inputs import (EMBEDDED, ENDLESS, TIMEOUT, embedding_server, expect_freed, expect_unit,
                           metric)

try:
    import openai
    from openai import OpenAI
except ImportError:
    print("SKIPPED: openai_client.py: the openai package is not installed (pip install openai)")
    sys.exit(0)

CHASKI = sys.argv[1] if len(sys.argv) > 1 else "build/chaski"
MODEL = sys.argv[2] if len(sys.argv) > 2 else "models/bundled/story.quipu"
QUESTION = [{"role": "user", "content": "Tell me of a cat."}]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
                   "required": ["city"], "additionalProperties": False}}}]


def alone(*arguments):
    return json.loads(subprocess.run([CHASKI, *arguments, "-m", MODEL, "-q", "--json"], check=True,
                                     capture_output=True, text=True).stdout)["text"]


def check_chat(client, model):
    text = alone("chat", "-p", QUESTION[0]["content"], "-n", "24", "--seed", "5")
    answer = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=24, seed=5)
    assert answer.choices[0].message.content == text, (answer, text)
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    parts, usage = [], None
    for chunk in client.chat.completions.create(model=model, messages=QUESTION, max_tokens=24,
                                                seed=5, stream=True,
                                                stream_options={"include_usage": True}):
        parts += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    assert "".join(parts) == text, (parts, text)
    assert usage.completion_tokens == answer.usage.completion_tokens
    scored = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=3, seed=5,
                                            logprobs=True, top_logprobs=2, n=2)
    assert len(scored.choices) == 2
    assert len(scored.choices[0].logprobs.content[0].top_logprobs) == 2
    formed = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=40, seed=5,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True,
                         "schema": {"type": "object", "properties": {"a": {"type": "boolean"}},
                                    "required": ["a"], "additionalProperties": False}}})
    if formed.choices[0].finish_reason == "stop":  # a small model may write white space until then
        assert isinstance(json.loads(formed.choices[0].message.content)["a"], bool)


def check_completions(client, model):
    text = alone("run", "-p", "Once upon a time", "-n", "20", "--seed", "3")
    answer = client.completions.create(model=model, prompt="Once upon a time", max_tokens=20,
                                       seed=3, logprobs=1)
    assert answer.choices[0].text == text, (answer, text)
    assert len(answer.choices[0].logprobs.token_logprobs) == answer.usage.completion_tokens
    stream = client.completions.create(model=model, prompt="Once upon a time", max_tokens=20,
                                       seed=3, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == text


def check_tools(client, model):
    try:
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "What is the weather in Lima?"}],
            tools=TOOLS, tool_choice="required", max_tokens=80, seed=1)
    except openai.BadRequestError as error:
        assert error.param == "tools", error
        print("openai: the model's chat template shows no tools, so calls were not checked")
        return
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and answer.choices[0].finish_reason == "tool_calls"
    parts = []
    for chunk in client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "What is the weather in Lima?"}],
            tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_weather"}},
            max_tokens=80, seed=1, stream=True):
        for choice in chunk.choices:
            parts += choice.delta.tool_calls or []
    assert parts[0].id and parts[0].function.name == "get_weather"
    assert "".join(part.function.arguments or "" for part in parts) == call.function.arguments
    more = client.chat.completions.create(
        model=model, max_tokens=20, seed=1, tools=TOOLS,
        messages=[{"role": "user", "content": "What is the weather in Lima?"},
                  answer.choices[0].message,
                  {"role": "tool", "tool_call_id": call.id, "content": "Sunny"}])
    assert more.choices[0].finish_reason


def check_responses(client, model):
    text = alone("chat", "-p", QUESTION[0]["content"], "-n", "24", "--seed", "5")
    settings = {"model": model, "max_output_tokens": 24, "extra_body": {"seed": 5}}
    answer = client.responses.create(input=QUESTION[0]["content"], **settings)
    assert answer.output_text == text, (answer, text)
    assert answer.usage.output_tokens > 0
    kinds, final = [], None
    with client.responses.stream(input=QUESTION[0]["content"], **settings) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type in ("response.completed", "response.incomplete"):
                final = event.response
    assert kinds[0] == "response.created" and final.output_text == text, (kinds, final)
    more = client.responses.create(input="And then?", previous_response_id=answer.id, **settings)
    assert more.previous_response_id == answer.id
    assert client.responses.retrieve(answer.id).output_text == text
    client.responses.delete(answer.id)


def check_errors(client, model):
    def expect(kind, call, **fields):
        try:
            call()
        except kind as error:
            for name, value in fields.items():
                assert getattr(error, name) == value, (error, name)
            return
        raise AssertionError(f"expected {kind}")

    chat = client.chat.completions.create
    expect(openai.NotFoundError, lambda: chat(model="none", messages=QUESTION),
           code="model_not_found")
    expect(openai.BadRequestError, lambda: chat(model=model, messages=QUESTION, temperature=-1),
           param="temperature")
    expect(openai.BadRequestError, lambda: chat(model=model, messages=[
        {"role": "user", "content": "cat " * 100000}]), code="context_length_exceeded")
    expect(openai.BadRequestError, lambda: client.embeddings.create(model=model, input="x"),
           code="unsupported_model")


def check_embeddings(client):
    # The package asks for base64 by itself, and decodes it.
    answer = client.embeddings.create(model="story", input=EMBEDDED)
    vectors = [one.embedding for one in answer.data]
    expect_unit(vectors)
    assert [one.index for one in answer.data] == [0, 1, 2] and answer.usage.prompt_tokens > 10
    floats = client.embeddings.create(model="story", input=EMBEDDED[1], encoding_format="float")
    assert list(array("f", floats.data[0].embedding)) == vectors[1]  # numbers of 32 bits


def check_timeouts(client, address):
    impatient = client.with_options(timeout=TIMEOUT, max_retries=0)
    ended = metric(address, "chaski_gone_total")
    for stream in (False, True):
        try:
            answer = impatient.completions.create(model="story", prompt="Once", max_tokens=1000000,
                                                  seed=1, extra_body=ENDLESS, stream=stream)
            if stream:  # its parts come in time, so that the client goes by itself
                next(iter(answer))
                answer.close()
        except openai.APITimeoutError:
            assert not stream
        else:
            assert stream, "expected an error: the answer has no end"
        expect_freed(address)
    assert metric(address, "chaski_gone_total") == ended + 1  # a stream had begun
    assert impatient.completions.create(model="story", prompt="Once", max_tokens=2).choices[0].text


def main():
    server = subprocess.Popen([CHASKI, "serve", "-m", MODEL, "--port", "0", "--no-log", "-q"],
                              stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        client = OpenAI(base_url=address + "/v1", api_key="none", max_retries=10)
        model = client.models.list().data[0].id
        for check in (check_chat, check_completions, check_tools, check_responses, check_errors):
            check(client, model)
    finally:
        server.terminate()
        server.wait()
    with embedding_server(CHASKI, MODEL) as address:
        client = OpenAI(base_url=address + "/v1", api_key="none", max_retries=10)
        check_embeddings(client)
        check_timeouts(client, address)
    print(f"openai {openai.__version__}: chat, completions, tools, responses, embeddings, errors and "
          "timeouts hold")


main()

#!/usr/bin/env python3
"""Checks chaski serve with PyPI's anthropic package: anthropic_client.py CHASKI [MODEL].

Messages, streams, tools, the number of tokens and errors. Texts are compared with those of chaski
chat. Tools are checked only if the model's chat template shows them. Skipped if the package is not
installed.
"""
import json
import subprocess
import sys

try:
    import anthropic
    from anthropic import Anthropic
except ImportError:
    print("SKIPPED: anthropic_client.py: the anthropic package is not installed (pip install anthropic)")
    sys.exit(0)

CHASKI = sys.argv[1] if len(sys.argv) > 1 else "build/chaski"
MODEL = sys.argv[2] if len(sys.argv) > 2 else "models/bundled/story.quipu"
QUESTION = [{"role": "user", "content": "Tell me of a cat."}]
WEATHER = [{"role": "user", "content": "What is the weather in Lima?"}]
TOOLS = [{"name": "get_weather", "description": "The weather of a city",
          "input_schema": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
                           "required": ["city"], "additionalProperties": False}}]


def alone(*arguments):
    return json.loads(subprocess.run([CHASKI, *arguments, "-m", MODEL, "-q", "--json"], check=True,
                                     capture_output=True, text=True).stdout)["text"]


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def check_messages(client, model):
    settings = {"model": model, "max_tokens": 24, "messages": QUESTION, "extra_body": {"seed": 5}}
    text = alone("chat", "-p", QUESTION[0]["content"], "-n", "24", "--seed", "5")
    answer = client.messages.create(**settings)
    assert text_of(answer) == text, (answer, text)
    assert answer.stop_reason in ("max_tokens", "end_turn")
    used = answer.usage
    counted = client.messages.count_tokens(model=model, messages=QUESTION)
    assert counted.input_tokens == used.input_tokens + used.cache_read_input_tokens, (counted, used)
    with client.messages.stream(**settings) as stream:
        parts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(parts) == text and text_of(final) == text, (parts, final)
    assert final.usage.output_tokens == used.output_tokens
    kinds = [event.type for event in client.messages.create(**settings, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    stop = text.split()[2]
    ended = client.messages.create(**settings, stop_sequences=[stop])
    assert ended.stop_reason == "stop_sequence" and ended.stop_sequence == stop, ended
    assert text_of(ended) == text[:text.index(stop)], ended


def check_prefixes(client, model):
    """A billing line that differs does not change what is read again."""
    def ask(billing):
        return client.messages.create(
            model=model, max_tokens=4, messages=QUESTION, extra_body={"seed": 5},
            system=[{"type": "text", "text": f"x-anthropic-billing-header: cch={billing};"},
                    {"type": "text", "text": "Tell short stories. " * 20}])
    first, second = ask("a"), ask("b")
    assert text_of(first) == text_of(second)
    assert second.usage.input_tokens <= 1 + 16, second.usage  # the last page of 16 tokens


def check_tools(client, model):
    settings = {"model": model, "max_tokens": 80, "messages": WEATHER, "tools": TOOLS,
                "extra_body": {"seed": 1}}
    try:
        answer = client.messages.create(**settings, tool_choice={"type": "any"})
    except anthropic.BadRequestError as error:
        assert "tools" in str(error), error
        print("anthropic: the model's chat template shows no tools, so calls were not checked")
        return
    call = answer.content[-1]
    assert answer.stop_reason == "tool_use" and call.name == "get_weather", answer
    named = {"type": "tool", "name": "get_weather"}
    with client.messages.stream(**settings, tool_choice=named) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == call.input, (final, call)
    more = client.messages.create(model=model, max_tokens=20, tools=TOOLS, messages=WEATHER + [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny"}]}])
    assert more.stop_reason


def check_errors(client, model):
    def expect(kind, says, **settings):
        try:
            client.messages.create(**{"model": model, "max_tokens": 4, "messages": QUESTION, **settings})
        except kind as error:
            assert says in error.body["error"]["message"], error
            return error
        raise AssertionError(f"expected {kind}")

    expect(anthropic.NotFoundError, "none", model="none")
    expect(anthropic.BadRequestError, "temperature", extra_body={"temperature": -1})
    expect(anthropic.BadRequestError, "prompt is too long: ",
           messages=[{"role": "user", "content": "cat " * 100000}])
    expect(anthropic.BadRequestError, "messages[0].content[0].type", messages=[
        {"role": "user", "content": [{"type": "image", "source": {
            "type": "url", "url": "https://HOST/x.png"}}]}])


def main():
    server = subprocess.Popen([CHASKI, "serve", "-m", MODEL, "--port", "0", "--no-log", "-q"],
                              stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        client = Anthropic(base_url=address, api_key="none", max_retries=10)
        model = client.models.list().data[0].id
        for check in (check_messages, check_prefixes, check_tools, check_errors):
            check(client, model)
    finally:
        server.terminate()
        server.wait()
    print(f"anthropic {anthropic.__version__}: messages, streams, prefixes, tools and errors hold")


main()

#!/usr/bin/env python3
"""Checks chaski serve with PyPI's langchain-openai package: langchain_client.py CHASKI [MODEL].

Chat, streams, tools, structured output, embeddings, errors and a timeout. Texts are compared with
those of chaski chat. The server has a chat template that shows tools, so that the bundled model can call them.
Skipped if the package is not installed.
"""
import json
import subprocess
import sys
import tempfile

from client_inputs import (EMBEDDED, ENDLESS, QUESTION, TEMPLATE, TIMEOUT, embedding_server,
                           expect_freed, expect_unit)

try:
    import openai
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
except ImportError:
    print("SKIPPED: langchain_client.py: langchain-openai is not installed "
          "(pip install langchain-openai)")
    sys.exit(0)

CHASKI = sys.argv[1] if len(sys.argv) > 1 else "build/chaski"
MODEL = sys.argv[2] if len(sys.argv) > 2 else "models/bundled/story.quipu"
SCHEMA = {"title": "answer", "type": "object", "properties": {"a": {"type": "boolean"}},
          "required": ["a"], "additionalProperties": False}


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}"


def check_chat(chat, template):
    command = [CHASKI, "chat", "-m", MODEL, "-p", QUESTION, "-n", "24", "--seed", "5",
               "--chat-template", template, "-q", "--json"]
    text = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[
        "text"]
    answer = chat.invoke(QUESTION)
    assert answer.content == text, (answer, text)
    assert answer.usage_metadata["output_tokens"] > 0, answer
    parts = list(chat.stream([HumanMessage(QUESTION)]))
    assert "".join(part.content for part in parts) == text, (parts, text)
    assert len(parts) > 3
    batch = chat.batch([QUESTION, QUESTION])
    assert [one.content for one in batch] == [text, text]
    assert chat.invoke([SystemMessage("Be brief."), HumanMessage(QUESTION)]).content


def check_tools(chat):
    # The bundled model would write an argument until the context is full.
    forced = chat.bind_tools([{"type": "function", "function": {
        "name": "get_weather", "description": get_weather.description,
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}},
                       "required": ["city"], "additionalProperties": False}}}],
        tool_choice="get_weather").bind(max_tokens=80)
    question = HumanMessage("What is the weather in Lima?")
    answer = forced.invoke([question])
    call = answer.tool_calls[0]
    assert call["name"] == "get_weather" and list(call["args"]) == ["city"], answer
    streamed = None
    for part in forced.stream([question]):
        streamed = part if streamed is None else streamed + part
    assert streamed.tool_calls[0]["args"] == call["args"], (streamed, call)
    result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
    assert chat.bind_tools([get_weather]).invoke([question, answer, result]).content is not None


def check_structure(chat):
    for method in ("json_schema", "function_calling"):
        asked = chat.with_structured_output(SCHEMA, method=method, include_raw=True)
        answer = asked.invoke("Is a cat an animal? Answer in JSON.")
        raw = answer["raw"]
        # A small model may write white space until the answer is cut off.
        if raw.response_metadata["finish_reason"] != "length":
            assert isinstance(answer["parsed"]["a"], bool), answer


def check_refused_embeddings(address):
    embeddings = OpenAIEmbeddings(base_url=address + "/v1", api_key="none", model="story",
                                  check_embedding_ctx_length=False)
    try:
        embeddings.embed_query("A cat")
    except openai.BadRequestError as error:
        assert error.code == "unsupported_model", error
        return
    raise AssertionError("expected an error: the model makes no embeddings")


def check_embeddings(address):
    embeddings = OpenAIEmbeddings(base_url=address + "/v1", api_key="none", model="story",
                                  check_embedding_ctx_length=False)
    vectors = embeddings.embed_documents(EMBEDDED)
    expect_unit(vectors)
    assert embeddings.embed_query(EMBEDDED[1]) == vectors[1]


def check_timeout(address):
    chat = ChatOpenAI(base_url=address + "/v1", api_key="none", model="story", max_retries=0,
                      max_tokens=1000000, timeout=TIMEOUT, extra_body=ENDLESS)
    try:
        chat.invoke(QUESTION)
    except openai.APITimeoutError:
        return expect_freed(address)
    raise AssertionError("expected an error: the answer has no end")


def main():
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write(TEMPLATE)
        template.flush()
        server = subprocess.Popen(
            [CHASKI, "serve", "-m", MODEL, "--port", "0", "--alias", "story", "--no-log", "-q",
             "--chat-template", template.name], stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()
            chat = ChatOpenAI(base_url=address + "/v1", api_key="none", model="story", seed=5,
                              max_tokens=24, max_retries=10, temperature=None)
            check_chat(chat, template.name)
            check_tools(chat)
            check_structure(chat)
            check_refused_embeddings(address)
        finally:
            server.terminate()
            server.wait()
    with embedding_server(CHASKI, MODEL) as address:
        check_embeddings(address)
        check_timeout(address)
    print("langchain-openai: chat, streams, batch, tools, structured output, embeddings, errors and a "
          "timeout hold")


main()

#!/usr/bin/env python3
"""Chats with real models in a terminal: twenty turns each with SmolLM2-135M-Instruct and Qwen2.5-Coder-0.5B-Instruct, with a system message,
/retry, /edit, /save and a resumed chat, a tool call and an answer by a JSON schema. The transcript goes to standard output for a person to
read. What can be checked is checked; a failed check ends the script.

    CHASKI_REAL_MODELS=../real scripts/study/day.py [build/chaski]
"""
import json, os, pty, re, select, subprocess, sys, tempfile, time

CHASKI = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/chaski")
MODELS = os.environ.get("CHASKI_REAL_MODELS", "../real")
SMOL = MODELS + "/SmolLM2-135M-Instruct.Q4_1.gguf"
QWEN = MODELS + "/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
FOLDER = tempfile.mkdtemp(prefix="chaski_day_")
PATIENCE = 300  # seconds for one answer
DONE = r"tokens; [0-9.]+ tok/s"
WEATHER = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city, now.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def expect(holds, what):
    if not holds:
        sys.exit("\n\nday: " + what)


class Terminal:
    def __init__(self, *arguments):
        print(f"\n{'=' * 100}\n$ chaski chat {' '.join(arguments)}", flush=True)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", XDG_STATE_HOME=FOLDER)
            os.execv(CHASKI, [CHASKI, "chat", *arguments])
        import fcntl, struct, termios
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.until("/help lists")

    def until(self, pattern):
        """Returns the output up to the prompt after the pattern, without control sequences."""
        shown, end = "", time.time() + PATIENCE
        while not (re.search(pattern, shown) and shown.endswith("> ")):
            expect(time.time() < end, f"no {pattern!r} in {PATIENCE} seconds")
            if not select.select([self.fd], [], [], 1)[0]:
                continue
            try:
                part = os.read(self.fd, 1 << 16).decode(errors="replace")
            except OSError:
                sys.exit(f"\n\nday: chaski ended before {pattern!r}")
            shown = re.sub(r"\033\[(?!\d+G)[0-9;?]*[a-zA-Z]|\033\][^\a]*\a|\r", "", shown + part)
            # A word that is moved to the next line is erased at the end of this line.
            shown = re.sub(r"([^\n]*)\033\[(\d+)G", lambda m: m[1][:int(m[2]) - 1], shown)
        print(shown, end="", flush=True)
        return shown

    def type(self, line, pattern=DONE):
        os.write(self.fd, (line + "\r").encode())
        return self.until(pattern)

    def quit(self):
        os.write(self.fd, b"/quit\r")
        status = os.waitpid(self.pid, 0)[1]
        expect(status == 0, f"chat ended with {status}")


def once(*arguments):
    print(f"\n{'=' * 100}\n$ chaski chat {' '.join(arguments)}", flush=True)
    out = subprocess.run([CHASKI, "chat", "-q", *arguments], capture_output=True, text=True)
    print(out.stdout + out.stderr, end="", flush=True)
    expect(out.returncode == 0, "one question failed")
    return out.stdout


def twenty_turns(model, questions):
    talk = f"{FOLDER}/{os.path.basename(model)}.json"  # a separate file: /save replaces no other conversation
    chat = Terminal("-m", model, "--seed", "1", "-n", "120", "--system", "You are a helpful guide. Answer in one or two sentences.")
    for question in questions[:8]:
        chat.type(question)
    chat.type("/retry")
    chat.type("/undo", "removed: ")
    os.write(chat.fd, b"/edit\r")
    time.sleep(1)
    chat.type(" Please be brief.")
    chat.type("/system Answer like a sailor.", "> ")
    for question in questions[8:12]:
        chat.type(question)
    chat.type("/tokens", r"of \d+ tokens")
    chat.type("/stats", "answers")
    chat.type("/save " + talk, "KV cache of")
    chat.quit()
    print(f"[{os.path.getsize(talk)} and {os.path.getsize(talk + '.kv')} bytes]")
    chat = Terminal("-m", model, "--seed", "1", "-n", "120", "--resume", talk)
    for i, question in enumerate(questions[12:]):
        shown = chat.type(question)
        if i == 0:
            known = int(re.search(r"(\d+) cached", chat.type("/stats", "cached")).group(1))
            expect(known > 100, f"a resumed chat knew {known} tokens")
    saved = json.load(open(talk))["messages"]
    expect(saved[0] == {"role": "system", "content": "Answer like a sailor."}, "the system message is lost")
    chat.quit()


QUESTIONS = ["Hello! Who are you?", "What is the capital of Peru?", "What is it known for?", "How far is it from Cusco?",
             "What should I pack for a week in the mountains?", "Make that a list of five things.", "Which of them is the heaviest?",
             "Thank you. What is 17 plus 25?", "Tell me a joke about llamas.", "Explain it.", "Write a haiku about the sea.",
             "And one about snow.", "What did I ask you first?", "Name three rivers in South America.", "Which is the longest?",
             "Translate 'good morning' into Spanish.", "And into French.", "What is the opposite of cold?", "Write one sentence with it.",
             "Goodbye!"]
CODE = ["Hello! What can you do?", "Write a Python function that reverses a string.", "Now without slicing.", "What is its complexity?",
        "Add a docstring.", "Write a test for it.", "What does assert do?", "How do I run the test?", "What is a list comprehension?",
        "Give an example.", "What is the difference between a list and a tuple?", "Which is faster?", "What did I ask you first?",
        "Write hello world in C.", "Explain the first line.", "What is a pointer?", "How do I compile it with gcc?",
        "What is 17 * 23?", "Write a regular expression for a date.", "Thank you, goodbye!"]

twenty_turns(SMOL, QUESTIONS)
twenty_turns(QWEN, CODE)

with open(FOLDER + "/tools.json", "w") as out:
    json.dump(WEATHER, out)
chat = Terminal("-m", QWEN, "--temp", "0", "-n", "120", "--tools", FOLDER + "/tools.json")
chat.type("What is the weather in Lima?", "get_weather returns> ")
answer = chat.type('{"degrees": 21, "sky": "clear"}')
expect("21" in answer, "the answer does not contain the result of the tool")
chat.quit()
calls = json.loads(once("-m", QWEN, "--temp", "0", "--tools", FOLDER + "/tools.json", "-p", "What is the weather in Lima?"))
expect(json.loads(calls[0]["function"]["arguments"]) == {"city": "Lima"}, "the tool call differs")
schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}, "country": {"type": "string", "maxLength": 30},
                                           "rivers": {"type": "array", "items": {"type": "string", "maxLength": 30}, "maxItems": 3}},
          "required": ["city", "country", "rivers"]}
answer = json.loads(once("-m", QWEN, "--temp", "0", "--json-schema", json.dumps(schema), "-p", "Tell me about Paris as JSON."))
expect(set(answer) == {"city", "country", "rivers"}, "the answer does not follow the schema")
print("\nday: all checks passed")

"""What the clients of the server ask, a chat template that shows tools and their calls, and a server
with a model for embeddings."""
import contextlib
import subprocess
import time
import urllib.request

QUESTION = "Tell me of a cat."
TEMPLATE = """{% if tools %}{% for t in tools %}{{ t | tojson }}
{% endfor %}<tool_call></tool_call>
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}\
<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""

# An answer without an end, for a client that gives up. Clients add them to a request of their own.
ENDLESS = {"ignore_eos": True, "context_policy": "shift"}
TIMEOUT = 0.5  # seconds, of a client
EMBEDDED = ["A cat sat on the mat.", "A dog.", "Once upon a time there was a big red ball."]


@contextlib.contextmanager
def embedding_server(chaski, model):
    """The address of a server whose model also computes embeddings."""
    server = subprocess.Popen([chaski, "serve", "-m", model, "--embedding-model", model, "--port",
                               "0", "--alias", "story", "--no-log", "-q"],
                              stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip()
        wait_until(lambda: is_ready(address), "the server is ready")
        yield address
    finally:
        server.terminate()
        server.wait()


def is_ready(address):
    try:
        with urllib.request.urlopen(address + "/health") as answer:
            return answer.status == 200
    except OSError:
        return False


def metric(address, name):
    with urllib.request.urlopen(address + "/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"/metrics has no {name}")


def wait_until(holds, what, seconds=20):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def expect_freed(address):
    """A request whose client gave up ends on the server, and its pages are free."""
    wait_until(lambda: metric(address, "llamacpp:requests_processing") == 0 and
               metric(address, "chaski_pages_used") == 0, "the request ends and frees its pages")
    assert metric(address, "chaski_gone_total") > 0


def expect_unit(vectors):
    """Vectors of EMBEDDED: of length 1, and of each text another one."""
    assert len(vectors) == len(EMBEDDED) and len(set(map(tuple, vectors))) == len(EMBEDDED)
    for vector in vectors:
        assert abs(sum(x * x for x in vector) - 1) < 1e-4, vector

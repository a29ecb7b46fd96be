#!/usr/bin/env python3
"""Hostile clients against chaski serve: abuse.py CHASKI [SHARE]. SHARE of the full load, default 1.

While three streams go on: 1000 slow connections, 10 000 clients that leave at a random moment and
100 000 malformed requests. Then a full queue. Checked: the server lives, each malformed request gets
status 4xx (501 for a method that HTTP does not have) or a closed connection, every stream has the
bytes of `chaski run`, and memory after the load is within 2 % of that after a quarter of it with as
many connections at once, when the prefix cache is full. Printed:
the times that /health, /metrics, /slots and a full queue take, as another process sees them. They
depend on what else the machine does, so its load is printed too; above 10 ms the exit status is 1.
"""
import asyncio
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time

CHASKI = sys.argv[1] if len(sys.argv) > 1 else "build/chaski"
SHARE = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
MODEL = "models/bundled/story.quipu"
SLOW, LEAVING, MALFORMED = int(1000 * SHARE), int(10_000 * SHARE), int(100_000 * SHARE)
STREAM_TOKENS = 120
MOST_SECONDS = 0.010
MOST_GROWTH = 0.02
POSTS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat",
         "/api/generate", "/api/show", "/completion", "/infill", "/tokenize", "/detokenize",
         "/apply-template", "/v1/messages/count_tokens", "/v1/embeddings", "/v1/rerank"]
failures = []


def head(method, path, size, more=""):
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}"
            f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n").encode()


def post(path, body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head("POST", path, len(body)) + body


def completion(seed, tokens, stream=True):
    return {"prompt": "Once upon a time", "seed": seed, "max_tokens": tokens, "ignore_eos": True,
            "stream": stream}


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [CHASKI, "serve", "-m", MODEL, "--port", "0", "--no-log", "-q", *flags],
            stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        while get(self.port, "/health") != 200:
            time.sleep(0.05)

    def memory(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def end(self):
        alive = self.process.poll() is None
        self.process.terminate()
        status = self.process.wait(60)
        if not alive or status != 0:
            failures.append(f"the server ended with status {status}")


def exchange(port, request):
    """The status of a request on a connection of its own; 0: closed without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request)
        answer = client.recv(4096)
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0


def get(port, path):
    return exchange(port, head("GET", path, 0))


def metric(port, name):
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    return float(text.split(f"\n{name} ", 1)[1].split("\n", 1)[0])


async def fill_cache(port):
    """The prefix cache may fill its pages: memory that it takes is no leak."""
    seed = 1000
    while metric(port, "chaski_pages_evicted_total") == 0:
        await asyncio.gather(*(asyncio.to_thread(
            exchange, port, post("/v1/completions", completion(seed + i, 400, False)))
            for i in range(8)))
        seed += 8


def watch(port, over, results):
    """Another process: how long the functions take that never wait for the engine."""
    times = {"/health": [], "/metrics": [], "/slots": []}
    while not over.is_set():
        for path, list_ in times.items():
            start = time.perf_counter()
            if get(port, path) != 200:
                results.put(f"{path} did not answer with 200")
            list_.append(time.perf_counter() - start)
        time.sleep(0.02)
    results.put(times)


def show_times(what, times):
    ordered = sorted(times)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(f"  {what}: {len(times)} times, p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms, "
          f"longest {1000 * ordered[-1]:.1f} ms")
    if p99 > MOST_SECONDS:
        failures.append(f"{what}: p99 is {1000 * p99:.1f} ms, expected at most "
                        f"{1000 * MOST_SECONDS:.0f} ms (load of the machine: {os.getloadavg()[0]})")


async def stream(port, seed, expected, over, counts):
    while not over.is_set():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post("/v1/completions", completion(seed, STREAM_TOKENS)))
        text = ""
        while True:
            line = await reader.readline()
            if not line or line == b"data: [DONE]\n":
                break
            if line.startswith(b"data: "):
                text += json.loads(line[6:])["choices"][0]["text"]
        writer.close()
        counts[text == expected] += 1


async def slow(port, rng):
    """Sends a request byte by byte, and reads an answer in the same way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = post("/v1/completions", completion(1, 2, False))
    try:
        for at in range(rng.randrange(len(request))):
            writer.write(request[at:at + 1])
            await asyncio.sleep(rng.random() / 5)
            if at > 40:
                break
        await asyncio.sleep(rng.random() * 2)
    except OSError:
        pass
    writer.transport.abort()


async def leave(port, rng):
    request = post(rng.choice(["/v1/completions", "/completion", "/api/generate"]),
                   completion(rng.randrange(100), 50, rng.random() < 0.7))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request[:rng.randrange(1, len(request))] if rng.random() < 0.3 else request)
        await asyncio.sleep(rng.random() * 0.03)
        if rng.random() < 0.5:
            writer.transport.abort()
        writer.close()
    except OSError:
        pass


def malformed(rng):
    """A request that no server should honour, and whether the connection may go on after it."""
    path = rng.choice(POSTS)
    bodies = [b"", b"{", b"[]", b"null", b"{\"model\":1}", b"\xff\xfe{}", b"[" * 5000,
              b"{\"a\":" * 200, rng.randbytes(rng.randrange(1, 300)),
              json.dumps({"messages": 1, "prompt": {}, "input": False, "content": 3,
                          "tokens": "x", "model": []}).encode(),
              json.dumps({"prompt": "x", "messages": [{"role": "user", "content": "x"}],
                          "input": "x", "content": 1, "tokens": [-1], "temperature": "hot",
                          "options": {"top_p": 7}, "model": {"a": 1}}).encode()]
    kind = rng.randrange(10)
    if kind < 6:
        return post(path, rng.choice(bodies)), True
    if kind == 6:
        return head("GET", rng.choice(["/..%2f..%2fetc/passwd", "/page/../../x", "/v1/models/%00",
                                       "/v1/responses/" + "a" * 5000, "/%zz", "/nothing"]),
                    0), True
    if kind == 7:
        return head(rng.choice(["PUT", "PATCH", "TRACE", "DELETE"]), path, 0), False
    if kind == 8:
        return rng.choice([
            b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n", b"POST " + path.encode() + b" HTTP/1.1\r\nHost: a\r\n"
            b"Content-Length: -5\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
            b"POST " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", rng.randbytes(200) + b"\r\n\r\n"]), False
    return rng.choice([
        head("POST", path, 1 << 40), head("GET", "/health", 0, "X: " + "y" * 70_000 + "\r\n"),
        head("GET", "/v1/models", 0, "Origin: https://evil.example\r\n"),
        b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n"]), False


async def send_malformed(port, rng, n, counts):
    reader = writer = None
    for _ in range(n):
        request, goes_on = malformed(rng)
        status = 0
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            if not goes_on:
                writer.write_eof()
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            status = int(answer.split(b" ", 2)[1])
            size = [line for line in answer.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")]
            await reader.readexactly(int(size[0].split(b":")[1]) if size else 0)
        except (OSError, EOFError, asyncio.LimitOverrunError):
            goes_on = False
        except asyncio.TimeoutError:
            status, goes_on = -1, False
        counts[status] = counts.get(status, 0) + 1
        if not goes_on and writer is not None:
            writer.transport.abort()
            writer = None
    if writer is not None:
        writer.transport.abort()


async def attack(port, share, seed, statuses):
    async def some(n, together, one):
        left = iter(range(n))

        async def worker(i):
            rng = random.Random(seed * 1000 + i)
            for _ in left:
                await one(rng)
        await asyncio.gather(*(worker(i) for i in range(together)))

    for name, work in (
            ("slow connections", some(SLOW, SLOW, lambda r: slow(port, r))),
            ("disconnects", some(int(LEAVING * share), 50, lambda r: leave(port, r))),
            ("malformed requests", asyncio.gather(*(
                send_malformed(port, random.Random(seed * 1000 + i), int(MALFORMED * share) // 16,
                               statuses) for i in range(16))))):
        start = time.perf_counter()
        await work
        print(f"  {name}: {time.perf_counter() - start:.1f} s", flush=True)


async def hostile(server, expected):
    over, counts, statuses = asyncio.Event(), {True: 0, False: 0}, {}
    streams = [asyncio.create_task(stream(server.port, seed, text, over, counts))
               for seed, text in expected.items()]
    await fill_cache(server.port)
    print("warm-up, a quarter of the load:")
    await attack(server.port, 0.25, 1, statuses)
    await asyncio.sleep(1)
    before = server.memory()
    statuses.clear()
    print("the load:")
    await attack(server.port, 1, 2, statuses)
    await asyncio.sleep(1)
    after = server.memory()
    over.set()
    await asyncio.gather(*streams)
    print(f"  malformed requests by status (0: closed): {dict(sorted(statuses.items()))}")
    print(f"  streams: {counts[True]} with the bytes of chaski run, {counts[False]} others")
    print(f"  memory: {before} kB before, {after} kB after ({100 * (after / before - 1):+.2f} %)")
    for status in statuses:
        if not (status == 0 or 400 <= status < 500 or status == 501):
            failures.append(f"{statuses[status]} malformed requests got status {status}")
    if counts[False]:
        failures.append(f"{counts[False]} streams differ from chaski run")
    if after > before * (1 + MOST_GROWTH):
        failures.append(f"memory grew from {before} kB to {after} kB, expected at most 2 %")


def full_queue():
    server = Server("--parallel", "2", "--queue", "2")
    busy = []
    for seed in range(4):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(post("/v1/completions", {**completion(seed, 1_000_000),
                                                "context_policy": "shift"}))
        busy.append(client)
    while exchange(server.port, post("/v1/completions", completion(1, 1))) != 503:
        time.sleep(0.05)
    times = []
    for _ in range(2000):
        start = time.perf_counter()
        status = exchange(server.port, post("/v1/completions", completion(1, 1)))
        times.append(time.perf_counter() - start)
        if status != 503:
            failures.append(f"a full queue answered with status {status}, expected 503")
    print("a full queue, while two streams run:")
    show_times("503", times)
    for client in busy:
        client.close()
    server.end()


def main():
    expected = {}
    for seed in range(3):
        run = subprocess.run([CHASKI, "run", "-m", MODEL, "-p", "Once upon a time", "--seed",
                              str(seed), "-n", str(STREAM_TOKENS), "--ignore-eos", "-q"],
                             check=True, capture_output=True, text=True)
        expected[seed] = run.stdout
    server = Server("--queue", "1000", "--timeout", "20")
    over, results = multiprocessing.Event(), multiprocessing.Queue()
    watcher = multiprocessing.Process(target=watch, args=(server.port, over, results))
    watcher.start()
    start = time.perf_counter()
    asyncio.run(hostile(server, expected))
    over.set()
    while isinstance(times := results.get(), str):
        failures.append(times)
    watcher.join()
    for path, list_ in times.items():
        show_times(path, list_)
    server.end()
    full_queue()
    print(f"{time.perf_counter() - start:.0f} s, load of the machine {os.getloadavg()[0]:.1f}")
    for failure in failures:
        print(f"abuse: {failure}")
    sys.exit(1 if failures else 0)


main()

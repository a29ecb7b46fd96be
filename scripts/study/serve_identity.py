#!/usr/bin/env python3
"""Checks that chaski serve gives each of many clients the bytes that `chaski run` and `chaski chat -p` give alone.

    serve_identity.py MODEL [--requests 1000] [--clients 16] [--tokens 96] [--ctx 512] [--cache] [--program build/chaski]

Clients come and go, whole and streamed; a tenth of them leaves in the middle of an answer, and some ask for 4 answers at once. The
context is small, so that the pages of the KV cache run out and requests are preempted: if none was, or no draft token was tried, the
exit status is 1 too. With --cache, a second server continues with the files of the first one after half of the requests. Prints the
differences and the counts.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

SUBJECTS = ["a lighthouse keeper", "two rivers", "the price of salt", "a red bicycle", "an old clock", "the night train", "a lost letter",
            "three brothers", "the city of glass", "a slow storm", "a garden in winter", "the last lesson"]
KINDS = ["Write a long story about", "List twenty facts about", "Write a Python program that simulates"]
REPEATED = " Repeat every sentence twice, word for word, and number the sentences from one on."
SEEDS = 8


def alone(program, model, kind, prompt, seed, tokens, ctx):
    command = [program, kind, "-m", model, "-p", prompt, "--seed", str(seed), "-n", str(tokens), "--ctx", str(ctx), "-q", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["text"]


class Server:
    def __init__(self, options, cache):
        command = [options.program, "serve", "-m", options.model, "--port", "0", "--no-log", "--ctx", str(options.ctx),
                   "--parallel", str(options.clients), "--queue", "1000"]
        self.process = subprocess.Popen(command + (["--cache", cache] if cache else []), stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        while True:
            try:
                urllib.request.urlopen(self.url + "/health").read()
                return
            except (OSError, ValueError):  # ValueError: no URL, because the server ended
                if self.process.poll() is not None or not self.url:
                    sys.exit(f"the server ended with status {self.process.wait()} before it answered")
                time.sleep(0.1)

    def metrics(self):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}

    def stop(self):
        self.process.terminate()
        if self.process.wait() != 0:
            sys.exit("the server ended with an error")


def ask(server, one, leaves):
    """The texts of the answers; None if the client left."""
    body = {"seed": one["seed"], "max_tokens": one["tokens"], "n": one["n"], "stream": one["stream"]}
    chat = one["kind"] == "chat"
    body |= {"messages": [{"role": "user", "content": one["prompt"]}]} if chat else {"prompt": one["prompt"]}
    request = urllib.request.Request(server.url + ("/v1/chat/completions" if chat else "/v1/completions"), json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        text_of = (lambda c: c["message"]["content"]) if chat else (lambda c: c["text"])
        if not one["stream"]:
            return [text_of(choice) for choice in sorted(json.load(answer)["choices"], key=lambda c: c["index"])]
        texts = [""] * one["n"]
        for events, line in enumerate(answer):
            if leaves and events > 40:
                return None
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    part = choice["delta"].get("content", "") if chat else choice["text"]
                    texts[choice["index"]] += part or ""
        return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=1000, metavar="N")
    parser.add_argument("--clients", type=int, default=16, metavar="N")
    parser.add_argument("--tokens", type=int, default=96, metavar="N")
    parser.add_argument("--ctx", type=int, default=512, metavar="N")
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--program", default=os.path.join(os.path.dirname(__file__), "../../build/chaski"))
    options = parser.parse_args()
    draw = random.Random(1)
    prompts = [(kind, f"{verb} {subject}.{REPEATED}") for subject in SUBJECTS for verb, kind in zip(KINDS, ("chat", "run", "chat"))]
    known = {(kind, prompt, seed): alone(options.program, options.model, kind, prompt, seed, options.tokens, options.ctx)
             for kind, prompt in prompts for seed in range(1, SEEDS + 1, 2)}
    jobs = []
    for _ in range(options.requests):
        kind, prompt = draw.choice(prompts)
        jobs.append({"kind": kind, "prompt": prompt, "seed": draw.randrange(1, SEEDS, 2), "n": 4 if draw.random() < .5 else 1,
                     "stream": draw.random() < .5, "tokens": options.tokens, "leaves": draw.random() < .2})
    counts = {"answers": 0, "compared": 0, "left": 0, "differ": 0, "failed": 0}
    lock = threading.Lock()

    def work(server, queue):
        while True:
            with lock:
                if not queue:
                    return
                one = queue.pop()
            try:
                texts = ask(server, one, one["leaves"] and one["stream"])
            except Exception as error:  # of any kind: the request has no answer
                with lock:
                    counts["failed"] += 1
                    print(f"FAILED: {one}: {error!r}", flush=True)
                continue
            with lock:
                counts["left"] += texts is None
                for i, text in enumerate(texts or []):
                    counts["answers"] += 1
                    want = known.get((one["kind"], one["prompt"], one["seed"] + i))
                    if want is None:
                        continue
                    counts["compared"] += 1
                    if text != want:
                        counts["differ"] += 1
                        print(f"DIFFERENT: {one}, answer {i}:\n{text!r}\n{want!r}", flush=True)

    totals = {}
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        halves = [jobs[::2], jobs[1::2]] if options.cache else [jobs]
        for queue in halves:
            server = Server(options, folder if options.cache else None)
            threads = [threading.Thread(target=work, args=(server, queue)) for _ in range(options.clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(.3)
            seen = server.metrics()
            for name in ("chaski_preempted_total", "chaski_draft_tokens_total", "chaski_draft_tokens_accepted_total", "chaski_pages_used",
                         "chaski_cache_answer_hits_total", "chaski_cache_prefix_hits_total"):
                totals[name] = totals.get(name, 0) + seen.get(name, 0)
            server.stop()
    print(f"{options.requests} requests by {options.clients} clients in {time.time() - start:.0f} s: " +
          ", ".join(f"{n} {what}" for what, n in counts.items()))
    print(", ".join(f"{name.removeprefix('chaski_').removesuffix('_total')} {value:.0f}" for name, value in totals.items()))
    happened = totals["chaski_preempted_total"] > 0 and totals["chaski_draft_tokens_total"] > 0
    sys.exit(1 if counts["differ"] or counts["failed"] or not happened or totals["chaski_pages_used"] else 0)


if __name__ == "__main__":
    main()

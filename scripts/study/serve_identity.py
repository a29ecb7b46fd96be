#!/usr/bin/env python3
"""Checks that chaski serve gives each of many clients the bytes that `chaski run` and `chaski chat -p` give alone.

    serve_identity.py MODEL [--requests 1000] [--clients 16] [--tokens 64] [--ctx 160] [--cache] [--program build/chaski]

Clients come and go, whole and streamed; a tenth of them leaves in the middle of an answer, and half of them ask for 4 answers at once.
The prompts repeat a sentence, and some answers have a grammar, so that draft tokens are accepted. The context is small, so that the
pages of the KV cache run out and requests are preempted. With --cache, a second server continues with the files of the first one after
half of the requests. Half of its requests have new seeds: the files have their prompts, but not their answers. The exit status is 1 if
an answer differs, or if one of these things never happened. Prints the differences and the counts.
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

SENTENCES = ["The keeper of the lighthouse lit the lamp at seven and wrote the time into the book. ",
             "Lily took the red ball to the park, and the dog ran after the ball until it was dark. ",
             "Two rivers meet at the old bridge, and the boats wait there for the night train. ",
             "The price of salt is ten coins, and the price of the red bicycle is ten coins too. ",
             "The bear ate the honey, and the bees came back and asked the bear for the honey. ",
             "In winter the garden is white, and in summer the garden is green and full of birds. "]
# A prompt is a sentence, repeated, and one of these ends. The bytes that the grammar determines become draft tokens.
ENDS = [("run", 4, "The", None), ("run", 4, "Then", None), ("chat", 2, "Repeat this text, word for word.", None),
        ("run", 4, "The words:", 'root ::= (" The next word is " [a-z]{1,8} ", and that is all.")+')]
# The seed of an answer is that of its request plus its number in the request.
SEEDS, NEW_SEEDS, ANSWERS = [1, 3, 5, 7], [21, 23], 4
HAPPENED = ["preempted", "draft_tokens", "draft_tokens_accepted"]
HAPPENED_IN_CACHE = ["cache_answer_hits", "cache_prefix_hits"]


def alone(options, prompt, seed):
    command = [options.program, prompt["kind"], "-m", options.model, "-p", prompt["text"], "--temp", str(prompt["temperature"]),
               "--seed", str(seed), "-n", str(options.tokens), "--ctx", str(options.ctx), "-q", "--json"]
    command += ["--grammar", prompt["grammar"]] if prompt["grammar"] else []
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode not in (0, 9):  # 9: the text ended before its grammar did
        sys.exit(f"{' '.join(command)}: {run.stderr}")
    return json.loads(run.stdout)["text"]


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
    body = {name: one[name] for name in ("seed", "max_tokens", "n", "stream", "temperature")}
    body |= {"grammar": one["grammar"]} if one["grammar"] else {}
    chat = one["kind"] == "chat"
    body |= {"messages": [{"role": "user", "content": one["text"]}]} if chat else {"prompt": one["text"]}
    request = urllib.request.Request(server.url + ("/v1/chat/completions" if chat else "/v1/completions"), json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        text_of = (lambda c: c["message"]["content"]) if chat else (lambda c: c["text"])
        if not one["stream"]:
            return [text_of(choice) for choice in sorted(json.load(answer)["choices"], key=lambda c: c["index"])]
        texts = [""] * one["n"]
        for lines, line in enumerate(answer):
            if leaves and lines > 20:
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
    parser.add_argument("--tokens", type=int, default=64, metavar="N")
    parser.add_argument("--ctx", type=int, default=160, metavar="N")
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--program", default=os.path.join(os.path.dirname(__file__), "../../build/chaski"))
    options = parser.parse_args()
    draw = random.Random(1)
    prompts = [{"kind": kind, "text": sentence * times + end, "temperature": draw.choice([.2, .8]), "grammar": grammar}
               for sentence in SENTENCES for kind, times, end, grammar in ENDS]
    servers = [SEEDS, SEEDS + NEW_SEEDS * 2] if options.cache else [SEEDS]  # the seeds that the clients of each server use
    known = {(prompt["text"], seed): alone(options, prompt, seed) for prompt in prompts for seed in sorted(set(servers[-1]))}
    queues = [[{**draw.choice(prompts), "seed": draw.choice(seeds), "n": ANSWERS if draw.random() < .5 else 1,
                "stream": draw.random() < .5, "max_tokens": options.tokens, "leaves": draw.random() < .2}
               for _ in range(options.requests // len(servers))] for seeds in servers]
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
                    want = known.get((one["text"], one["seed"] + i))
                    if want is None:
                        continue
                    counts["compared"] += 1
                    if text != want:
                        counts["differ"] += 1
                        print(f"DIFFERENT: {one}, answer {i}:\n{text!r}\n{want!r}", flush=True)

    totals = {}
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        for queue in queues:
            server = Server(options, folder if options.cache else None)
            threads = [threading.Thread(target=work, args=(server, queue)) for _ in range(options.clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(.3)
            seen = server.metrics()
            for name in HAPPENED:
                totals[name] = totals.get(name, 0) + seen[f"chaski_{name}_total"]
            if options.cache:  # those of the second server remain
                totals |= {name: seen[f"chaski_{name}_total"] for name in HAPPENED_IN_CACHE}
            server.stop()
            if seen["chaski_pages_used"]:
                sys.exit(f"{seen['chaski_pages_used']:.0f} pages are still used after the last request")
    print(f"{options.requests} requests by {options.clients} clients in {time.time() - start:.0f} s: " +
          ", ".join(f"{n} {what}" for what, n in counts.items()))
    print(", ".join(f"{name} {value:.0f}" for name, value in totals.items()))
    missing = [name for name, value in {**totals, "left": counts["left"]}.items() if not value]
    if missing:
        print(f"never happened: {', '.join(missing)}")
    sys.exit(1 if counts["differ"] or counts["failed"] or missing else 0)


if __name__ == "__main__":
    main()

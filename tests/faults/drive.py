#!/usr/bin/env python3
"""make faults: runs the program on a machine with faults. Every run must end as docs/guide.md says: with its
usual output and exit status 0, or with one line on stderr and 4 or 5. Prints how many runs ended in
which way. The exit status is 1 if a run ended in any other way.

  drive.py BINARY SHIM [allocations|unwinding|limits|calls|kills|groups ...]
           [--to N] [--step N] [--only COMMAND] [--jobs N]

allocations  the Nth allocation fails, only that one, or all after it too
unwinding    the same without the program's new handler, so that bad_alloc unwinds
limits       69 sizes of ulimit -v
calls        the Nth system call of each kind fails, for several reasons
kills        kill -9 instead of the Nth call that writes; the next run has to work
groups       8 sizes of a memory control group (as root, if one can be made and has an effect)
"""
import argparse, collections, concurrent.futures, errno, os, pathlib, re, resource, signal
import subprocess, sys, tempfile

parser = argparse.ArgumentParser()
parser.add_argument("binary")
parser.add_argument("shim")
parser.add_argument("parts", nargs="*")
parser.add_argument("--to", type=int, default=5000, help="the last allocation that fails")
parser.add_argument("--step", type=int, default=1)
parser.add_argument("--only", action="append", help="run only this command; may be repeated")
parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
options = parser.parse_args()
PARTS = ["allocations", "unwinding", "limits", "calls", "kills", "groups"]
parts = options.parts or PARTS
binary, shim = map(os.path.abspath, (options.binary, options.shim))
root = tempfile.TemporaryDirectory(prefix="chaski_faults_")
top = pathlib.Path(root.name)
STORY = os.path.abspath("models/bundled/story.quipu")
GGUF = str(top / "story.gguf")
subprocess.run([binary, "convert", STORY, GGUF], check=True, stderr=subprocess.DEVNULL)

# {out} is a file in a folder that belongs to the run.
COMMANDS = {
    "run": ["run", "-n", "3", "--seed", "1", "-t", "2"],
    "run gguf": ["run", "-m", GGUF, "-p", "The", "-n", "3", "--seed", "1", "-t", "2"],
    "tokenize": ["tokenize", "-m", GGUF, "-p", "Once upon a time", "--ids"],
    "quantize": ["quantize", GGUF, "{out}", "--type", "q8", "-t", "2"],
    "to gguf": ["convert", STORY, "{out}.gguf", "-t", "2"],
}
# The first two that ever failed, if their files are there.
data = pathlib.Path(os.environ.get("CHASKI_TEST_DATA", "../shared/data"))
for name, file, command in [
        ("run tiny", "models/llama-2-tiny-random.gguf",
         ["run", "-m", None, "-p", "a", "-n", "3", "--seed", "1"]),
        ("tokenize gpt-2", "vocab/ggml-vocab-gpt-2.gguf", ["tokenize", "-m", None, "-p", "a b", "--ids"])]:
    if (data / file).exists():
        COMMANDS[name] = [str(data / file) if word is None else word for word in command]

COMMANDS = {name: words for name, words in COMMANDS.items() if not options.only or name in options.only}

Result = collections.namedtuple("Result", "status out err files")


def run(command, variables={}, limit=None, prepare=None, keep=None, more=[]):
    folder = keep or tempfile.mkdtemp(dir=top)
    arguments = [word.replace("{out}", folder + "/out") for word in COMMANDS[command]] + more

    def before():
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if prepare:
            prepare()

    environment = dict(os.environ, CHASKI_CONFIG="none", **variables)
    if variables:
        environment["LD_PRELOAD"] = shim
    with open(folder + "/stdout", "w+b") as out, open(folder + "/stderr", "w+b") as err:
        try:
            status = subprocess.run([binary] + arguments, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=err, env=environment, preexec_fn=before,
                                    timeout=120).returncode
        except subprocess.TimeoutExpired:
            status = "hang"
        out.seek(0), err.seek(0)
        text, words = out.read(), err.read().decode(errors="replace")
    os.unlink(folder + "/stdout"), os.unlink(folder + "/stderr")
    files = sorted(os.listdir(folder))
    if not keep:
        for file in files:
            os.unlink(folder + "/" + file)
        os.rmdir(folder)
    return Result(status, text if command != "quantize" else b"", words, files)


clean = {command: run(command) for command in COMMANDS}
for command, result in clean.items():
    if result.status != 0:
        sys.exit(f"{command}: fails without any fault: {result.err}")


def verdict(command, result):
    """None if the run ended as expected, otherwise what was wrong."""
    status, usual = result.status, clean[command]
    lines = result.err.splitlines()
    if status == 0:
        if usual.out is not None and result.out != usual.out or result.files != usual.files:
            return "exit 0 with different output"
        return None
    if status == 127 and "loading shared libraries" in result.err:
        return None  # the dynamic loader failed before the program started
    if status not in (4, 5):
        return signal.Signals(-status).name if isinstance(status, int) and status < 0 else f"exit {status}"
    if not lines or not lines[-1].startswith("chaski: "):
        return f"exit {status} without a line"
    if len(lines) > len(usual.err.splitlines()) + 1:
        return f"exit {status} with several lines"
    if [name for name in result.files if name.endswith(".tmp")]:
        return f"exit {status}, a temporary file is left"
    return None


bad = 0


def sweep(title, cases, jobs=options.jobs):
    """cases: (command, what it is, arguments of run)"""
    global bad
    counts, wrong = collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for (command, what, _), result in zip(
                cases, pool.map(lambda case: run(case[0], **case[2]), cases)):
            fault = verdict(command, result)
            counts["loader" if result.status == 127 and not fault else fault or f"exit {result.status}"] += 1
            if fault:
                wrong.append(f"  {command}, {what}: {fault}: {result.err.strip()[-300:]}")
    bad += len(wrong)
    print(f"{title}: {len(cases)} runs:", ", ".join(f"{n} {what}" for what, n in sorted(counts.items())),
          flush=True)
    for line in wrong[:20]:
        print(line, flush=True)


def calls_of(command):
    count = str(top / "count")
    run(command, {"FAULT_COUNT": count})
    lines = pathlib.Path(count).read_text().splitlines()
    return {name: int(n) for name, n in map(str.split, lines)}


def allocation_cases(command, more):
    most = min(options.to, calls_of(command)["alloc"])
    for n in range(1, most + 1, options.step):
        for ever in ("0", "1"):
            variables = {"FAULT_ALLOC": str(n), "FAULT_FOR_EVER": ever, **more}
            yield command, f"allocation {n}{' and all after' * int(ever)}", {"variables": variables}


def limit_cases():
    # From the limit at which the dynamic loader works to the limit at which nothing fails.
    lowest = 8 << 20
    while subprocess.run([binary, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (lowest, lowest))
                         ).returncode != 0:
        lowest += 1 << 18
    for command in COMMANDS:
        for i in range(69):
            size = lowest + (i << 18 if i < 40 else (40 << 18) + ((i - 40) << 22))
            yield command, f"ulimit -v {size >> 10}", {"limit": size}


REASONS = {
    "open": [errno.ENFILE, errno.EIO], "read": [errno.EIO], "pread": [errno.EIO],
    "write": [errno.EIO, errno.ENOSPC], "pwrite": [errno.EIO, errno.ENOSPC], "mmap": [errno.ENOMEM],
    "fstat": [errno.EIO], "ftruncate": [errno.ENOSPC], "fallocate": [errno.ENOSPC, errno.EFBIG],
    "fsync": [errno.EIO], "close": [errno.EIO], "rename": [errno.EACCES],
    "pthread_create": [errno.EAGAIN],
}


def call_cases():
    for command in COMMANDS:
        for call, n in calls_of(command).items():
            for error in REASONS.get(call, []):
                for at in range(1, min(n, 40) + 1):
                    for ever in ("0", "1"):
                        yield command, f"{call} {at}: {errno.errorcode[error]}", {"variables": {
                            "FAULT_CALL": f"{call}:{at}:{error}", "FAULT_FOR_EVER": ever}}


def kills():
    """A killed writer must leave the old file or the new one. The next run must work, start again or continue,
    and clean up."""
    global bad
    counts = collections.Counter()
    for command, name, more, most in [("quantize", "out", [], 30), ("quantize", "out", ["--resume"], 150),
                                      ("to gguf", "out.gguf", [], 30)]:
        if command not in COMMANDS:
            continue
        calls = calls_of(command)
        folder = tempfile.mkdtemp(dir=top)
        run(command, keep=folder)
        whole = pathlib.Path(folder, name).read_bytes()
        for old in (b"old", whole):
            for call in ("pwrite", "fallocate", "fsync", "rename", "close"):
                for at in range(1, min(calls[call], most) + 1):
                    pathlib.Path(folder, name).write_bytes(old)
                    killed = run(command, {"FAULT_KILL": f"{call}:{at}"}, keep=folder, more=more)
                    left = len(killed.files) - 1
                    held = pathlib.Path(folder, name).read_bytes()
                    again = run(command, keep=folder, more=more)
                    fault = ("damaged" if held not in (old, whole) else
                             f"the next run: {again.status} {again.err}" if again.status else
                             "a temporary file is still there" if again.files != [name] else
                             "the next run's file differs" if pathlib.Path(folder, name).read_bytes() != whole
                             else None)
                    counts[fault or ("whole, a temporary file was left and removed" if left else "whole")] += 1
                    if fault:
                        bad += 1
                        print(f"  {command}, killed at {call} {at}: {fault}")
                        for file in set(again.files) - {name}:
                            os.unlink(folder + "/" + file)
    print(f"kills: {sum(counts.values())} runs:", ", ".join(f"{n} {what}" for what, n in counts.items()),
          flush=True)


def groups():
    """A control group (version 1 or 2), if one can be made, with a limit that really kills."""
    v1 = pathlib.Path("/sys/fs/cgroup/memory")
    base, limit = (v1, "memory.limit_in_bytes") if v1.is_dir() else (pathlib.Path("/sys/fs/cgroup"), "memory.max")
    group = base / f"chaski_faults_{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(64 << 20))
    except OSError as error:
        print(f"groups: SKIPPED: no control group can be made here ({error})")
        return
    join = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        hog = subprocess.run([sys.executable, "-c", "b = bytearray(200 << 20); b[::4096] = b'x' * len(b[::4096])"],
                             preexec_fn=join).returncode
        if hog == 0:
            print("groups: SKIPPED: limits of control groups do not hold here")
            return
        # Half a gigabyte of random weights with activations, keys and values, for which the program asks beforehand.
        for command, words in [("weights", ["-p", "1"]), ("long prompt", ["-p", "512"]),
                               ("f32 cache", ["-p", "512", "--kv", "f32"]), ("depth", ["-p", "1", "--depth", "1024"])]:
            COMMANDS[command] = ["bench", "--shape", "smollm-135m:f16", "-n", "1", "-r", "1", "--json", *words]
            clean[command] = Result(0, None, "chaski: on the CPU\n", [])  # figures differ each time
        for size in (64, 128, 256, 288, 320, 352, 384, 512):
            (group / limit).write_text(str(size << 20))
            sweep(f"group of {size} MiB", [(command, f"{size} MiB", {"prepare": join}) for command in
                                           ("weights", "long prompt", "f32 cache", "depth")], jobs=1)
    finally:
        group.rmdir()


for part in parts:
    if part in ("allocations", "unwinding"):
        for command in COMMANDS:
            more = {"FAULT_UNWIND": "1"} if part == "unwinding" else {}
            sweep(f"{part}, {command}", list(allocation_cases(command, more)))
    elif part == "limits":
        sweep("limits", list(limit_cases()))
    elif part == "calls":
        sweep("calls", list(call_cases()))
    elif part == "kills":
        kills()
    elif part == "groups":
        groups()
    else:
        sys.exit(f"{part}: expected one of {', '.join(PARTS)}")
sys.exit(1 if bad else 0)

#!/usr/bin/env python3
"""Kills, stops or cuts off a rank of a run on several machines at a random moment. Every run must end
within 10 s with one line on stderr that names the host, and leave no process. Its output must be the
beginning of what one process writes, and the terminal that it was started from must be unchanged.
A run after a pause of 2 s must go on. Prints how many runs ended in which way. The exit status is 1
if a run ended in any other way.

  ranks.py BINARY [--kills N] [--stops N] [--cuts N] [--pauses N] [--seed N] [--jobs N]

kills   kill -9 of one of two ranks on this machine
stops   SIGSTOP of one of them
cuts    two network namespaces, and the link between them drops everything or goes down (as root)
pauses  as cuts, but the link comes back; then Ctrl-C
"""
import argparse, collections, concurrent.futures, os, pathlib, pty, random, signal, subprocess, sys
import tempfile, termios, time

parser = argparse.ArgumentParser()
parser.add_argument("binary", type=os.path.realpath)
parser.add_argument("--kills", type=int, default=100)
parser.add_argument("--stops", type=int, default=60)
parser.add_argument("--cuts", type=int, default=40)
parser.add_argument("--pauses", type=int, default=6)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--jobs", type=int, default=3)
options = parser.parse_args()
root = tempfile.TemporaryDirectory(prefix="chaski_ranks_")
top = pathlib.Path(root.name)
STORY = os.path.abspath("models/bundled/story.quipu")
# Long enough that no run ends by itself.
RUN = ["run", "-m", STORY, "-t", "1", "-n", "1000000", "--ignore-eos", "--context-policy", "shift",
       "--seed", "1", "-p", "Once", "-q"]
MOST = 10  # seconds from the fault to the end
LATEST = 1.6  # seconds from the start of the ranks to the fault
PAUSE = 2  # seconds
MARK = "CHASKI_FAULT_RUN"
A, B = f"ta{os.getpid()}", f"tb{os.getpid()}"
ADDRESSES = {A: "10.97.0.1", B: "10.97.0.2"}


def processes(mark):
    """The processes of a run: their ids, and their ranks or None."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            if not entry.isdigit() or b"State:\tZ" in pathlib.Path("/proc", entry, "status").read_bytes():
                continue
            variables = pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in variables:
                program = os.readlink(f"/proc/{entry}/exe") == options.binary
                rank = [v.split(b"=")[1] for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
                found[int(entry)] = int(rank[0]) if rank and program else None
        except OSError:
            pass  # it has ended
    return found


def namespaces():
    """Two machines: host names, addresses, and a program in the place of ssh."""
    for name, address in ADDRESSES.items():
        subprocess.run(["ip", "netns", "add", name], check=True)
        folder = pathlib.Path("/etc/netns", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text("127.0.0.1 localhost\n" +
                                      "".join(f"{a} {n}\n" for n, a in ADDRESSES.items()))
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "link", "add", A, "netns", A, "type", "veth", "peer", "name", B, "netns", B], check=True)
    for name, address in ADDRESSES.items():
        subprocess.run(["ip", "-n", name, "addr", "add", address + "/24", "dev", name], check=True)
        subprocess.run(["ip", "-n", name, "link", "set", name, "up"], check=True)
    agent = top / "agent"
    agent.write_text("#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\n"
                     "exec ip netns exec $host unshare -u bash -c \"hostname $host; exec bash -c \\\"\\$0\\\"\" \"$*\"\n")
    agent.chmod(0o755)
    return {"OMPI_MCA_plm_rsh_agent": str(agent), "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_btl_tcp_if_include": "10.97.0.0/24", "OMPI_MCA_oob_tcp_if_include": "10.97.0.0/24"}


def end_namespaces():
    for name in ADDRESSES:
        subprocess.run(["ip", "netns", "del", name])
        for file in pathlib.Path("/etc/netns", name).glob("*"):
            file.unlink()
        pathlib.Path("/etc/netns", name).rmdir()


def link(state):
    subprocess.run(["ip", "-n", A, "link", "set", A, state], check=True)


def neighbours(word, *more):
    """With a wrong address of the other machine every packet is lost without an error."""
    for name, other in ((A, B), (B, A)):
        subprocess.run(["ip", "-n", name, "neigh", word, ADDRESSES[other], "dev", name, *more], check=True)


def start(kind, mark, out, err, variables):
    """A run, started from a terminal of its own. Returns it and the terminal."""
    hosts = [A, B] if kind in ("cut", "pause") else ["localhost", "localhost"]
    command = [options.binary, *RUN, "--hosts", ",".join(hosts)]
    if hosts[0] == A:
        command = ["ip", "netns", "exec", A, "unshare", "-u", "bash", "-c", f'hostname {A}; exec "$@"', "x", *command]
    # setsid gives it the terminal
    controller, terminal = pty.openpty()
    environment = dict(os.environ, CHASKI_CONFIG="none", CHASKI_LEAST_BYTES="0", **variables, **{MARK: mark})
    program = subprocess.Popen(["setsid", "-c", *command], stdin=terminal, stdout=out, stderr=err, env=environment)
    return program, controller, terminal


def end(process, number):
    """It may have ended just now."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


def break_link(chance):
    """Returns the call that brings it back."""
    if chance.random() < 0.5:
        link("down")
        return lambda: link("up")
    neighbours("replace", "lladdr", "02:00:00:00:00:01", "nud", "permanent")
    return lambda: neighbours("del")


def run(kind, number, variables={}):
    """Returns what was wrong, or None; how long the run took to end; its line; and the bytes of its text."""
    chance = random.Random(f"{options.seed} {kind} {number}")
    mark, rank, moment = f"{os.getpid()}-{kind}-{number}", chance.randrange(2), chance.uniform(0, LATEST)
    with open(top / (mark + ".out"), "w+b") as out, open(top / (mark + ".err"), "w+b") as err:
        program, controller, terminal = start(kind, mark, out, err, variables)
        settings = termios.tcgetattr(terminal)
        victim, began = None, time.monotonic()
        while victim is None and program.poll() is None and time.monotonic() - began < 120:
            time.sleep(0.01)
            victim = next((p for p, r in processes(mark).items() if r == rank), None)
        time.sleep(moment)
        mend, went_on = None, False
        if kind in ("cut", "pause"):
            mend = break_link(chance)
        elif victim:
            end(victim, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        fault = time.monotonic()
        if kind == "pause":
            time.sleep(PAUSE)
            mend()
            mend, before = None, os.fstat(out.fileno()).st_size
            while time.monotonic() - fault < MOST / 2 and not went_on:
                time.sleep(0.05)
                went_on = os.fstat(out.fileno()).st_size > before
            os.write(controller, b"\x03")  # Ctrl-C
        try:
            status = program.wait(timeout=30)
        except subprocess.TimeoutExpired:
            status = None
        took = time.monotonic() - fault
        while processes(mark) and time.monotonic() - fault < MOST + (PAUSE if kind == "pause" else 0):
            time.sleep(0.05)
        left = processes(mark)
        for process in left:
            end(process, signal.SIGKILL)
        program.wait()
        if mend:
            mend()
        restored = termios.tcgetattr(terminal) == settings
        os.close(controller), os.close(terminal)
        out.seek(0), err.seek(0)
        text, lines = out.read(), err.read().decode(errors="replace").splitlines()
    names = [A, B] if kind == "cut" else [os.uname().nodename, "localhost"]
    n = min(len(text), len(expected))
    wrong = ("no end" if status is None else "processes are left" if left else
             "another terminal" if not restored else "other output" if text[:n] != expected[:n] else None)
    if kind == "pause":
        wrong = wrong or ("it does not go on" if not went_on else f"exit {status}" if status != -signal.SIGINT else
                          "an error" if any("error" in line for line in lines) else None)
    else:
        wrong = wrong or ("more than 10 s" if took > MOST else f"exit {status}" if status != 5 else
                          f"{len(lines)} lines" if len(lines) != 1 else
                          "another line" if not lines[0].startswith("chaski: error: ") else
                          "no host" if not any(n in lines[0] for n in names) else None)
    if wrong:
        wrong = (wrong, f"rank {rank}, {moment:.2f} s after the start, {took:.1f} s: status {status}, left {left}: " +
                 " | ".join(lines)[:600])
    return wrong, took, "\n".join(lines), len(text)


alone = [options.binary, *RUN]
alone[alone.index("-n") + 1] = "3000"
expected = subprocess.run(alone, check=True, capture_output=True, env=dict(os.environ, CHASKI_CONFIG="none")).stdout

bad = 0


def report(kind, results):
    global bad
    ways = collections.Counter(wrong[0] if wrong else "as expected" for wrong, _, _, _ in results)
    said = collections.Counter(line for wrong, _, line, _ in results if not wrong and kind != "pause")
    print(f"{kind}: {len(results)} runs:", ", ".join(f"{n} {way}" for way, n in ways.items()) +
          f"; the longest ended after {max(t for _, t, _, _ in results):.1f} s, "
          f"{sum(n > 0 for _, _, _, n in results)} had written text", flush=True)
    for line, n in said.most_common():
        print(f"  {n} times: {line}")
    for wrong, _, _, _ in results:
        if wrong:
            bad += 1
            print(f"  {wrong[0]}: {wrong[1]}", flush=True)


with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    for kind, n in (("kill", options.kills), ("stop", options.stops)):
        if n > 0:
            report(kind, list(pool.map(lambda number: run(kind, number), range(n))))
if options.cuts + options.pauses > 0:
    try:
        variables = namespaces()
        for kind, n in (("cut", options.cuts), ("pause", options.pauses)):
            if n > 0:
                report(kind, [run(kind, number, variables) for number in range(n)])
    finally:
        end_namespaces()
sys.exit(1 if bad else 0)

#!/usr/bin/env python3
"""Prints compile_commands.json: the compiler calls that `make -n` lists."""
import argparse, json, os, re, shlex, subprocess

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--make", default="make")
dry = [*shlex.split(parser.parse_args().make), "-B", "-n", "-j1", "V=1", "build/chaski", "build/tests.bin", "build/tests-shim.bin"]
# The flags of an outer make must not reach this one, and build/.setup must not be made again.
environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
text = subprocess.run(dry + ["-o", "build/.setup"], env=environment, capture_output=True, text=True, check=True).stdout
entries = []
for line in text.splitlines():
    words = shlex.split(line) if " -c " in line else []
    if "-include" in words:  # gcc's precompiled headers, which other tools cannot read
        at = words.index("-include")
        del words[at:at + 2]
    if "-c" in words and words[0] != "@echo" and "c++-header" not in words:
        at = words.index("-c") + 1
        unit = words[at]
        files = [unit]
        if os.path.basename(unit).startswith("unit_"):  # a unit of several files (UNITS in the Makefile)
            with open(unit) as text:
                files = re.findall('"(.*)"', text.read())
        for file in files:
            entries.append({"directory": os.getcwd(), "file": file, "arguments": words[:at] + [file] + words[at + 1:]})
print(json.dumps(entries, indent=1))

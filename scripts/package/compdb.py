#!/usr/bin/env python3
"""Prints compile_commands.json: the compiler calls that `make -n` lists."""
import argparse, json, os, shlex, subprocess

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--make", default="make")
dry = [*shlex.split(parser.parse_args().make), "-B", "-n", "-j1", "V=1", "build/chaski", "build/tests.bin", "build/tests-shim.bin"]
# The flags of an outer make must not reach this one, and build/.setup must not be made again.
environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
text = subprocess.run(dry + ["-o", "build/.setup"], env=environment, capture_output=True, text=True, check=True).stdout
entries, said = [], []
for line in text.splitlines():
    if line.startswith('echo "  CXX '):
        said = [word for word in line.strip('"').split() if word.endswith(".cpp")]
    words = shlex.split(line) if " -c " in line else []
    if "-include" in words:  # gcc's precompiled headers, which other tools cannot read
        at = words.index("-include")
        del words[at:at + 2]
    if "-c" in words and words[0] != "@echo" and "c++-header" not in words:
        at = words.index("-c") + 1
        unit = words[at]
        files = said if os.path.basename(unit) == "unit.cpp" else [unit]  # a unit of several files (UNITS in the Makefile)
        for file in files:
            entries.append({"directory": os.getcwd(), "file": file, "arguments": words[:at] + [file] + words[at + 1:]})
print(json.dumps(entries, indent=1))

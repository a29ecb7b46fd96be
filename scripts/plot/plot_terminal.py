#!/usr/bin/env python3
"""Runs a session in a terminal and draws what it shows.

    plot_terminal.py scripts/plot/terminal.session --model MODEL.gguf -o docs/terminal.svg

The session is a list of shell commands (terminal.session explains its form). They run one after
another in an empty folder, each in a pseudo-terminal of COLUMNS columns with the chaski of
--chaski first in PATH. The picture has the commands and their whole output, nothing is edited.
Of escape sequences only faint text is drawn; the others are dropped. Writes SVG as text; needs
nothing but Python.
"""
import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from xml.sax.saxutils import escape

COLUMNS, ROWS = 100, 40
CELL, LINE, MARGIN, BAR = 7.45, 17, 14, 26  # a character, a line, the frame, the title bar; pixels
COLOURS = {"prompt": "#7fb069", "typed": "#f2f2f2", "plain": "#d0d4d8", "faint": "#8a9299"}
SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>]")


def session_of(path):
    with open(path) as file:
        lines = [l.rstrip("\n") for l in file if not l.startswith("#")]
    cut = lines.index("---")
    return lines[:cut], "\n".join(lines[cut + 1 :]).strip().split("\n\n")


def output_of(command, folder, environment):
    """What the command writes to a terminal, bytes as they come."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                               stdout=child, stderr=child, start_new_session=True)
    os.close(child)
    output = b""
    while True:
        try:
            block = os.read(parent, 65536)
        except OSError:  # Linux: the last writer has closed the terminal
            break
        if not block:
            break
        output += block
    os.close(parent)
    if process.wait() != 0:
        raise SystemExit(f"plot_terminal.py: {command}: exit status {process.returncode}\n{output.decode()}")
    return output.decode()


def screen_of(output):
    """Lines of (character, style): a carriage return goes back, the next characters overwrite."""
    lines, column, style = [[]], 0, "plain"
    at = 0
    while at < len(output):
        found = SEQUENCE.match(output, at)
        if found:
            at = found.end()
            if found.group(2) == "m":
                style = "faint" if "2" in (found.group(1) or "").split(";") else "plain"
            if found.group(2) == "K":
                del lines[-1][column if found.group(1) in ("", "0") else 0 :]
            continue
        character = output[at]
        at += 1
        if character == "\n":
            lines.append([])
            column = 0
        elif character == "\r":
            column = 0
        elif character >= " ":
            if column == COLUMNS:
                lines.append([])
                column = 0
            lines[-1] += [(" ", "plain")] * (column + 1 - len(lines[-1]))
            lines[-1][column] = (character, style)
            column += 1
    while lines and not lines[-1]:
        lines.pop()
    return lines


def typed(command):
    """The lines of a command, each after the shell's prompt."""
    return [[("$" if n == 0 else ">", "prompt"), (" ", "plain")] + [(c, "typed") for c in line]
            for n, line in enumerate(command.split("\n"))]


def svg_of(lines):
    width = round(2 * MARGIN + COLUMNS * CELL)
    height = BAR + 2 * MARGIN + LINE * len(lines)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
             f'<rect width="{width}" height="{height}" rx="8" fill="#1d2329"/>']
    parts += [f'<circle cx="{MARGIN + 8 + 20 * i}" cy="{BAR / 2 + 3}" r="5.5" fill="{c}"/>'
              for i, c in enumerate(("#e0655c", "#e0b04c", "#62b257"))]
    parts.append('<g font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="12.4" xml:space="preserve">')
    for row, line in enumerate(lines):
        y, start = BAR + MARGIN + LINE * row + 12, 0
        while start < len(line):
            end, style = start, line[start][1]
            while end < len(line) and line[end][1] == style:
                end += 1
            run = "".join(c for c, _ in line[start:end])
            if run.strip():
                parts.append(f'<text x="{MARGIN + start * CELL:.1f}" y="{y}" fill="{COLOURS[style]}" '
                             f'textLength="{len(run) * CELL:.1f}">{escape(run)}</text>')
            start = end
    return "\n".join(parts + ["</g>", "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description="run a session in a terminal and draw it")
    parser.add_argument("session", metavar="FILE.session")
    parser.add_argument("--model", required=True, metavar="MODEL.gguf")
    parser.add_argument("--chaski", default="build/chaski", metavar="FILE")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.svg")
    arguments = parser.parse_args()
    prepare, commands = session_of(arguments.session)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        work, home = folder + "/work", folder + "/home"
        os.mkdir(work)
        os.mkdir(home)
        binary = os.path.dirname(os.path.abspath(arguments.chaski))
        environment = {"PATH": f"{binary}:{os.environ['PATH']}", "HOME": home, "TERM": "xterm", "LANG": "C.UTF-8", "CHASKI_CONFIG": "none",
                       "CHASKI_MODELS": work + "/models", "MODEL": os.path.abspath(arguments.model)}
        subprocess.run(["bash", "-ec", "\n".join(prepare)], cwd=work, env=environment, check=True, stdout=sys.stderr)
        for command in commands:
            lines += typed(command) + screen_of(output_of(command, work, environment)) + [[]]
    with open(arguments.output, "w") as file:
        file.write(svg_of(lines[:-1]))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws the roofline picture (Williams, Waterman, Patterson 2009) from rows of `chaski bench --csv`.

    plot_bench.py FILE.csv... -o docs/roofline.svg

x: operations for each byte read; y: operations in a second. Left of the ridge, memory is the limit (the slope). Right of it,
arithmetic is the limit (the horizontal lines). Both were measured in the runs that made the rows. With several files, each is
one format of weights.
Writes SVG as text; needs nothing but Python.
"""
import argparse
import csv
import math
import statistics
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 700, 470
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 44, 52  # margins of the plot
COLOURS = ["#0b6e99", "#c2571a", "#4c7a34", "#7b4fa3", "#a8324a", "#8a6d1c"]
MARKS = {"decode": "circle", "width": "triangle", "prompt": "square", "matmul": "diamond", "sgemm": "diamond"}
NAMES = {"decode": "decode", "width": "n tokens at once", "prompt": "prompt", "matmul": "matmul", "sgemm": "OpenBLAS sgemm"}


def rows_of(paths):
    rows = []
    for path in paths:
        with open(path, newline="") as file:
            rows += list(csv.DictReader(file))
    if not rows:
        raise SystemExit("plot_bench.py: no rows in " + ", ".join(paths))
    return rows


class Axes:
    """Axes that are logarithmic in both directions."""

    def __init__(self, x_range, y_range):
        self.x, self.y = x_range, y_range

    def at(self, x, y):
        part = lambda value, r: (math.log(value) - math.log(r[0])) / (math.log(r[1]) - math.log(r[0]))
        return (LEFT + part(x, self.x) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - part(y, self.y) * (HEIGHT - TOP - BOTTOM))

    @staticmethod
    def ticks(r):
        low, high = math.floor(math.log2(r[0])), math.ceil(math.log2(r[1]))
        return [2.0**k for k in range(low, high + 1) if r[0] <= 2.0**k <= r[1]]


class Picture:
    def __init__(self):
        self.parts, self.taken = [], []

    def add(self, text):
        self.parts.append(text)

    def line(self, a, b, colour, width=1.0, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def text(self, x, y, text, size=11, anchor="start", colour="#333", turn=0):
        turned = f' transform="rotate({turn:.1f} {x:.1f} {y:.1f})"' if turn else ""
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{turned}>{escape(text)}</text>')

    def mark(self, kind, x, y, colour, hollow=False, r=4.5):
        fill = "#fff" if hollow else colour
        style = f'fill="{fill}" stroke="{colour}" stroke-width="1.3"'
        corners = {"triangle": [(0, -1.2), (1.1, 0.8), (-1.1, 0.8)], "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
                   "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)]}
        if kind == "circle":
            self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" {style}/>')
        else:
            points = " ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in corners[kind])
            self.add(f'<polygon points="{points}" {style}/>')
        self.taken.append((x - r, y - r, x + r, y + r))

    def label(self, x, y, text, colour, size=10):
        """Writes the name of a mark next to it, in the first free place. Returns False if there is none."""
        w, h = 0.58 * size * len(text), size
        for dx, dy in [(9, 4), (9, 13), (-9 - w, 4), (-w / 2, -9), (-w / 2, 17), (9, -6), (-9 - w, -6), (-9 - w, 14), (5, 18)]:
            box = (x + dx - 2, y + dy - h, x + dx + w + 2, y + dy + 2)
            inside = LEFT < box[0] and box[2] < WIDTH - RIGHT and TOP < box[1] and box[3] < HEIGHT - BOTTOM
            if inside and not any(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in self.taken):
                self.taken.append(box)
                self.text(x + dx, y + dy, text, size, colour=colour)
                return True
        return False


def number(value):
    return f"{value:g}" if value >= 1 else f"1/{1 / value:g}"


def draw_axes(p, axes):
    for x in axes.ticks(axes.x):
        foot = axes.at(x, axes.y[0])
        p.line(foot, axes.at(x, axes.y[1]), "#e4e4e4")
        p.text(foot[0], foot[1] + 15, number(x), 10, "middle", "#555")
    for y in axes.ticks(axes.y):
        foot = axes.at(axes.x[0], y)
        p.line(foot, axes.at(axes.x[1], y), "#e4e4e4")
        p.text(foot[0] - 6, foot[1] + 3.5, number(y), 10, "end", "#555")
    p.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "operations per byte read", 12, "middle")
    p.text(17, (TOP + HEIGHT - BOTTOM) / 2, "Gop/s", 12, "middle", turn=-90)


def draw_limits(p, axes, rows):
    """The slope and the ceilings, named where no mark can be. Medians of the runs, because the limits change from run to run."""
    median = lambda name: statistics.median(float(r[name]) for r in rows)
    read = median("read_gigabytes_per_second")
    ceilings = {"8-bit": median("int8_gigaops_per_second"), "f32": median("f32_gigaops_per_second")}
    top = max(ceilings.values())
    foot, ridge = axes.at(axes.x[0], read * axes.x[0]), axes.at(top / read, top)
    p.line(foot, ridge, "#333", 1.6)
    for i in range(100):  # keep names of cases away from the slope
        x, y = (foot[k] + (ridge[k] - foot[k]) * i / 99 for k in (0, 1))
        p.taken.append((x - 2, y - 2, x + 2, y + 2))
    turn = math.atan2(ridge[1] - foot[1], ridge[0] - foot[0])
    x, y = axes.at(top / read / 1.15, top / 1.15)
    p.text(x + 6 * math.sin(turn), y - 6 * math.cos(turn), f"memory, {read:.1f} GB/s", 11, "end", turn=math.degrees(turn))
    for name, ceiling in ceilings.items():
        highest = ceiling == top
        p.line(axes.at(ceiling / read, ceiling), axes.at(axes.x[1], ceiling), "#333", 1.6, "" if highest else "5 3")
        x, y = axes.at(axes.x[1], ceiling)
        p.text(x - 4, y - 5 if highest else y + 13, f"{name} arithmetic, {ceiling:.0f} Gop/s", 11, "end")
        p.taken += [(axes.at(ceiling / read, 1)[0], y - 2, x, y + 2), (x - 175, y - 16, x, y) if highest else (x - 175, y, x, y + 16)]


def what(row):
    return {"decode": "decode", "width": row["tokens"]}.get(row["case"], f'{NAMES[row["case"]]} {row["tokens"]}')


def draw_cases(p, axes, rows, formats):
    points = []
    for r in rows:
        gops = float(r["gigaops_per_second"])
        x, y = axes.at(float(r["operations"]) / float(r["bytes"]), gops)
        colour = COLOURS[formats.index(r["format"]) % len(COLOURS)]
        p.mark(MARKS[r["case"]], x, y, colour, hollow=r["case"] == "sgemm")
        points.append((x, y, what(r), colour, r["case"]))
    # Decode first, widths last: if there is not enough room, the most important names are drawn.
    for x, y, text, colour, case in sorted(points, key=lambda q: (q[4] == "width", q[4] != "decode")):
        p.label(x, y, text, colour)


def draw_legend(p, rows, formats):
    x, y = LEFT, 20
    for i, f in enumerate(formats):
        p.add(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLOURS[i % len(COLOURS)]}"/>')
        p.text(x + 14, y, f, 11)
        x += 26 + 7 * len(f)
    x += 14
    for case in [c for c in MARKS if any(r["case"] == c for r in rows)]:
        p.mark(MARKS[case], x + 5, y - 4, "#555", hollow=case == "sgemm")
        p.text(x + 14, y, NAMES[case], 11)
        x += 30 + 6.1 * len(NAMES[case])


def picture(rows):
    intensity = [float(r["operations"]) / float(r["bytes"]) for r in rows]
    speed = [float(r["gigaops_per_second"]) for r in rows]
    top = max(max(float(r["int8_gigaops_per_second"]), float(r["f32_gigaops_per_second"])) for r in rows)
    axes = Axes((min(intensity) / 1.7, max(intensity) * 1.9), (min(speed) / 1.8, max(top, max(speed)) * 1.5))
    formats = list(dict.fromkeys(r["format"] for r in rows))
    p = Picture()
    p.add(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>')
    draw_axes(p, axes)
    draw_limits(p, axes, rows)
    draw_cases(p, axes, rows, formats)
    draw_legend(p, rows, formats)
    first = rows[0]
    models = ", ".join(dict.fromkeys(r["model"].split(":")[0].split("/")[-1] for r in rows))
    p.text(LEFT, 36, f'{models}, {first["threads"]} threads, {", ".join(dict.fromkeys(r["isa"] for r in rows))}', 10, colour="#666")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    return "\n".join([head, *p.parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description="the roofline picture of rows of chaski bench --csv")
    parser.add_argument("files", nargs="+", metavar="FILE.csv")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.svg")
    arguments = parser.parse_args()
    text = picture(rows_of(arguments.files))
    with open(arguments.output, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()

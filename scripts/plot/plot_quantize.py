#!/usr/bin/env python3
"""Draws the error of each tensor, layer by layer, from the output of `chaski quantize --json`.

    plot_quantize.py FILE.json -o errors.svg            of the weights: sum (x - x')^2 / sum x^2
    plot_quantize.py FILE.json --outputs -o errors.svg  of a few rows' outputs, if measured (--calibrate)
    plot_quantize.py --places LABEL=FILE.json ... -o kl.svg  KL divergence of files from their base by the place in a
                                                        window; FILE.json: `chaski compare BASE FILE --json`

A row is a layer, a column a kind of tensor; tensors outside the layers are above. Darker squares have a larger error (by its
logarithm); white ones have none. Each square shows its number and format when the pointer is on it. Needs nothing but Python.
"""
import argparse
import itertools
import json
import math
import re
from xml.sax.saxutils import escape

from plot_bench import COLOURS, Picture

CELL_WIDTH, CELL_HEIGHT = 74, 17
LEFT, TOP = 60, 74
PALE, DARK = (236, 242, 246), (11, 60, 110)


def errors_of(report, outputs):
    """{(layer or "", kind): (error, format)}, for matrices."""
    cells = {}
    for tensor in report["tensors"]:
        error = tensor["relative_squared_error"]
        if outputs:
            if "outputs" not in tensor:
                continue
            error = tensor["outputs"]["relative_squared_error"]
        elif tensor["to"] == "f32":
            continue
        layer = re.fullmatch(r"layer\.(\d+)\.(.+)", tensor["name"])
        place = (int(layer[1]), layer[2]) if layer else ("", tensor["name"])
        cells[place] = (error, tensor["to"])
    return cells


def colour(share):
    return "#%02x%02x%02x" % tuple(round(a + (b - a) * share) for a, b in zip(PALE, DARK))


def picture(report, cells, title):
    lost = {place: error for place, (error, _) in cells.items() if error > 0}
    if not lost:
        raise SystemExit("plot_quantize.py: no tensor has an error")
    # The scale covers the tensors of layers only. An embedding of more bits would make all of them dark.
    some = [error for (layer, _), error in lost.items() if layer != ""] or list(lost.values())
    low, high = math.log(min(some)), math.log(max(some))
    layers = sorted({layer for layer, _ in cells}, key=lambda layer: -1 if layer == "" else layer)
    kinds = list(dict.fromkeys(kind for layer, kind in cells if layer != ""))
    alone = [kind for layer, kind in cells if layer == ""]
    columns = max(len(kinds), len(alone), 4)
    width, height = LEFT + columns * CELL_WIDTH + 16, TOP + (len(layers) + 3) * CELL_HEIGHT + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="10">',
             f'<rect width="{width}" height="{height}" fill="white"/>']

    def text(x, y, words, size=10, anchor="start", ink="#333"):
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{ink}">{escape(str(words))}</text>')

    def cell(column, row, name, error, format):
        share = min(max((math.log(error) - low) / (high - low or 1), 0), 1) if error > 0 else 0
        x, y = LEFT + column * CELL_WIDTH, TOP + row * CELL_HEIGHT
        parts.append(f'<g><title>{escape(name)}: {error:.3g}, {escape(format)}</title>'
                     f'<rect x="{x}" y="{y}" width="{CELL_WIDTH - 1}" height="{CELL_HEIGHT - 1}" '
                     f'fill="{colour(share) if error > 0 else "white"}" stroke="#ccc" stroke-width=".5"/></g>')
        if error > 0:
            text(x + CELL_WIDTH / 2, y + 12, f"{error:.2g}", 9, "middle", "white" if share > 0.55 else "#333")

    text(LEFT, 18, title, 13)
    text(LEFT, 34, f'{report["input"]} to {report["type"]}', 10, ink="#777")
    row = 0
    if alone:
        for i, kind in enumerate(alone):
            text(LEFT + (i + 0.5) * CELL_WIDTH, TOP - 6, kind, 9, "middle")
            cell(i, row, kind, *cells["", kind])
        row += 2.5
    for i, kind in enumerate(kinds):
        text(LEFT + (i + 0.5) * CELL_WIDTH, TOP + row * CELL_HEIGHT - 6, kind, 9, "middle")
    for layer in layers:
        if layer == "":
            continue
        text(LEFT - 6, TOP + row * CELL_HEIGHT + 12, layer, 9, "end")
        for i, kind in enumerate(kinds):
            if (layer, kind) in cells:
                cell(i, row, f"layer.{layer}.{kind}", *cells[layer, kind])
        row += 1
    text(LEFT, TOP + row * CELL_HEIGHT + 18, f"from {min(some):.2g} (pale) to {max(some):.2g} (dark), by logarithm", 9, ink="#777")
    return "\n".join(parts + ["</svg>", ""])


def places(labels):
    """A line for each label. The scale of the divergences is logarithmic, that of the places is linear."""
    width, height, left, right, top, bottom = 640, 330, 56, 70, 50, 46
    some = [part["kl"] for report in labels.values() for part in report["by_place"]]
    if not some or min(some) <= 0:
        raise SystemExit("plot_quantize.py: expected divergences above 0 at all places")
    low, high = math.log(min(some) / 1.15), math.log(max(some) * 1.15)
    last = max(report["by_place"][-1]["last"] for report in labels.values())
    first = min(report["by_place"][0]["first"] for report in labels.values())
    x = lambda place: left + (place - first) / (last - first) * (width - left - right)
    y = lambda kl: height - bottom - (math.log(kl) - low) / (high - low) * (height - top - bottom)
    p = Picture()
    p.add(f'<rect width="{width}" height="{height}" fill="#fff"/>')
    ticks = [m * 10.0**e for e in range(-6, 2) for m in (1, 2, 5)]
    for tick in (t for t in ticks if low <= math.log(t) <= high):
        p.line((left, y(tick)), (width - right, y(tick)), "#e4e4e4")
        p.text(left - 6, y(tick) + 3.5, f"{tick:g}", 10, "end", "#555")
    report = next(iter(labels.values()))
    for part in report["by_place"]:
        middle = (part["first"] + part["last"]) / 2
        p.text(x(middle), height - bottom + 15, f'{part["first"]}-{part["last"]}', 9, "middle", "#555")
    for colour, (label, report) in zip(itertools.cycle(COLOURS), labels.items()):
        points = [(x((part["first"] + part["last"]) / 2), y(part["kl"])) for part in report["by_place"]]
        for a, b in zip(points, points[1:]):
            p.line(a, b, colour, 1.4)
        for point in points:
            p.mark("circle", *point, colour, r=3)
        p.text(width - right + 4, points[-1][1] + 4, label, 11, "start", colour)
    p.text(left, 20, "Kullback-Leibler divergence from the base, nats a token, by logarithm", 13)
    p.text(left, 36, f'{report["a"]["model"].rpartition("/")[2]}, {report["windows"]} windows of {report["window"]} tokens', 10, "start", "#777")
    p.text((left + width - right) / 2, height - 10, "token of a window", 11, "middle")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    return "\n".join([head, *p.parts, "</svg>", ""])


def read(path):
    with open(path) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="output of chaski quantize --json; with --places LABEL=FILE")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--outputs", action="store_true", help="errors of outputs instead of weights")
    kind.add_argument("--places", action="store_true", help="divergences by the place in a window")
    parser.add_argument("-o", default="errors.svg", metavar="FILE")
    options = parser.parse_args()
    if options.places:
        drawn = places({label: read(path) for label, _, path in (f.partition("=") for f in options.files)})
    elif len(options.files) > 1:
        parser.error("one FILE at a time")
    else:
        report = read(options.files[0])
        cells = errors_of(report, options.outputs)
        if not cells:
            raise SystemExit(f"plot_quantize.py: {options.files[0]} has no such figures")
        title = "Squared error of outputs" if options.outputs else "Squared error of weights"
        drawn = picture(report, cells, title + ", relative to their squares")
    with open(options.o, "w") as file:
        file.write(drawn)


if __name__ == "__main__":
    main()

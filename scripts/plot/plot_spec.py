#!/usr/bin/env python3
"""Draws the acceptance rate of draft tokens by their place, and the speed-up that they gave.

    plot_spec.py LABEL=RUN.json[,PLAIN.json] ... -o docs/speculation.svg

RUN.json is the output of `chaski run --json` (or chat) with draft tokens, PLAIN.json that of the same run with
`--draft none`. A label may be given several times: its draft tokens are summed, and the median of its speed-ups is drawn,
with a tick for each run. With a plain run, the speed-up is the ratio of the two measured speeds, drawn as a full bar.
Without one, it is the governor's estimate, drawn as an open bar. Writes SVG as text; needs nothing but Python.
"""
import argparse
import json
import statistics

from plot_bench import COLOURS, Picture

WIDTH, HEIGHT = 700, 300
TOP, BOTTOM = 40, 42
LEFT_PLOT, RIGHT_PLOT = (52, 340), (430, 690)  # from and to, in x


def read(path):
    with open(path) as file:
        runs = json.load(file)
    return runs if isinstance(runs, list) else [runs]


class Label:
    def __init__(self):
        self.drafted, self.accepted, self.gains, self.by_clock = [], [], [], True

    def add(self, run, plain):
        for mine, more in ((self.drafted, run["drafted_by_place"]), (self.accepted, run["accepted_by_place"])):
            mine += [0] * (len(more) - len(mine))
            for i, n in enumerate(more):
                mine[i] += n
        if plain:
            if plain["answer_ids"] != run["answer_ids"]:
                raise SystemExit("plot_spec.py: the two runs wrote different tokens, so they are not the same run")
            self.gains.append(run["decode_tokens_per_second"] / plain["decode_tokens_per_second"])
        else:
            self.gains.append(run["speed_up"])
            self.by_clock = False


def labels_of(arguments):
    labels = {}
    for argument in arguments:
        name, _, files = argument.partition("=")
        with_guesses, _, plain = files.partition(",")
        runs, plains = read(with_guesses), read(plain) if plain else []
        for i, run in enumerate(runs):
            labels.setdefault(name, Label()).add(run, plains[i] if plains else None)
    return labels


def up(part):
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def draw_acceptance(p, labels):
    """The acceptance rate at each place. A token counts as accepted if those before it are accepted too."""
    left, right = LEFT_PLOT
    places = max([len(l.drafted) for l in labels.values()] + [1])
    x = lambda place: left + (place + 0.5) * (right - left) / places
    for share in (0, 0.25, 0.5, 0.75, 1):
        p.line((left, up(share)), (right, up(share)), "#e4e4e4")
        p.text(left - 6, up(share) + 3.5, f"{share:g}", 10, "end", "#555")
    for place in range(places):
        p.text(x(place), HEIGHT - BOTTOM + 15, str(place + 1), 10, "middle", "#555")
    for colour, label in zip(COLOURS, labels.values()):
        points = [(x(i), up(a / d)) for i, (d, a) in enumerate(zip(label.drafted, label.accepted)) if d > 0]
        for a, b in zip(points, points[1:]):
            p.line(a, b, colour, 1.4)
        for point in points:
            p.mark("circle", *point, colour, r=3)
    p.text((left + right) / 2, HEIGHT - 8, "place of a draft token after the last token", 11, "middle")
    p.text(left, TOP - 10, "accepted draft tokens, as a share of those proposed there", 11)


def draw_gains(p, labels):
    left, right = RIGHT_PLOT
    top = max([max(l.gains) for l in labels.values()] + [1]) * 1.1
    wide = (right - left) / len(labels)
    for gain in [g / 2 for g in range(0, int(2 * top) + 1)]:
        p.line((left, up(gain / top)), (right, up(gain / top)), "#333" if gain == 1 else "#e4e4e4")
        p.text(left - 6, up(gain / top) + 3.5, f"{gain:g}", 10, "end", "#555")
    for i, (colour, (name, label)) in enumerate(zip(COLOURS, labels.items())):
        x, height = left + wide * (i + 0.2), statistics.median(label.gains) / top
        fill = colour if label.by_clock else "none"
        p.add(f'<rect x="{x:.1f}" y="{up(height):.1f}" width="{0.6 * wide:.1f}" height="{up(0) - up(height):.1f}" fill="{fill}" stroke="{colour}"/>')
        for gain in label.gains:
            p.line((x + 0.2 * wide, up(gain / top)), (x + 0.4 * wide, up(gain / top)), "#000")
        p.text(x + 0.3 * wide, HEIGHT - BOTTOM + 15, name, 10, "middle", colour)
        p.text(x + 0.3 * wide, up(height) - 5, f"{statistics.median(label.gains):.2f}", 10, "middle", colour)
    p.text(left, TOP - 10, "speed, relative to a run without draft tokens", 11)


def main():
    parser = argparse.ArgumentParser(description="the acceptance and speed of draft tokens, from chaski run --json")
    parser.add_argument("runs", nargs="+", metavar="LABEL=RUN.json[,PLAIN.json]")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.svg")
    arguments = parser.parse_args()
    labels = labels_of(arguments.runs)
    p = Picture()
    p.add(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>')
    draw_acceptance(p, labels)
    draw_gains(p, labels)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">'
    with open(arguments.output, "w") as file:
        file.write("\n".join([head, *p.parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()

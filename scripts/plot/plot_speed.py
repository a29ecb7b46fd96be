#!/usr/bin/env python3
"""Draws the speed of chaski compared with other programs as bars, from a small table.

    plot_speed.py scripts/plot/speed.csv -o docs/speed.svg

The first line of the table is a comment: machine, date and units, which become the caption. Then
one row for each model and program, with tokens per second of a prompt and of decoding. The longest
bar of a model is its fastest program, so that small and large models share one picture. The number
at each bar is the figure itself. Writes SVG as text; needs nothing but Python.
"""
import argparse
import csv

from plot_bench import Picture

WIDTH = 760
NAMES, BAR, GAP, TOP = 196, 13, 12, 62  # width of the names, height of a bar, between models, head
PANELS = [("prompt", "Reading a prompt, tokens/s", NAMES, 464), ("decode", "Generating, tokens/s", 490, 756)]
COLOURS = {"chaski": "#c2571a", "llama.cpp": "#9aa5ad", "ik_llama.cpp": "#5f7480"}
NUMBER = 44  # room for the figure after a bar


def table(path):
    with open(path, newline="") as file:
        caption = file.readline().lstrip("# ").strip()
        models = {}
        for row in csv.DictReader(file):
            models.setdefault(row["model"], {})[row["program"]] = row
    return caption, models


def draw_panel(p, models, field, title, left, right):
    p.text(left, TOP - 12, title, 12)
    y = TOP
    for programs in models.values():
        most = max(float(row[field]) for row in programs.values())
        for name, row in programs.items():
            wide = float(row[field]) / most * (right - left - NUMBER)
            p.add(f'<rect x="{left}" y="{y}" width="{wide:.1f}" height="{BAR - 2}" fill="{COLOURS[name]}"/>')
            p.text(left + wide + 5, y + BAR - 4, row[field], 10, colour="#222")
            y += BAR
        y += GAP


def main():
    parser = argparse.ArgumentParser(description="speed compared with other programs, as bars")
    parser.add_argument("table", metavar="SPEED.csv")
    parser.add_argument("-o", "--output", required=True, metavar="OUT.svg")
    arguments = parser.parse_args()
    caption, models = table(arguments.table)
    p = Picture()
    y = TOP
    for model, programs in models.items():
        p.text(NAMES - 10, y + BAR * len(programs) / 2 + 2, model, 11, "end")
        y += BAR * len(programs) + GAP
    for panel in PANELS:
        draw_panel(p, models, *panel)
    x = 12
    for name, colour in COLOURS.items():
        p.add(f'<rect x="{x}" y="16" width="11" height="11" fill="{colour}"/>')
        p.text(x + 16, 26, name, 12)
        x += 40 + 7 * len(name)
    height = y + 26
    p.text(12, height - 14, caption, 10, colour="#555")
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">')
    with open(arguments.output, "w") as file:
        file.write("\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', *p.parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Prints the strings of quant/gguf/grids.cpp: the tuples in the gguf package's IQ tables, a bit for each possible tuple.

The tables list tuples of 8 digits below 3, or of 4 digits below 8. A tuple is read as a number, the first digit lowest, and
the tables are in the order of these numbers. So a bit for each number describes a whole table. Six bits are a character,
the lowest bit first.
"""

import gguf
import numpy as np

NAMES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ3_XXS", "IQ3_S")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def digits(name):
    """An array (tuples, digits), from the values that the package multiplies with."""
    table = getattr(gguf.quants, name)
    table.init_grid()
    values = list(table.grid_map)
    return np.array([[values.index(int(v)) for v in row] for row in table.grid.reshape(table.grid_shape)])


def numbers(name, base):
    tuples = digits(name)
    return (tuples * base ** np.arange(tuples.shape[1])).sum(1)


if __name__ == "__main__":
    for name in NAMES:
        base = 8 if name.startswith("IQ3") else 3
        used = numbers(name, base)
        assert (np.diff(used) > 0).all()
        bits = np.zeros(6 * -(-base ** (4 if base == 8 else 8) // 6), int)
        bits[used] = 1
        text = "".join(ALPHABET[n] for n in (bits.reshape(-1, 6) << np.arange(6)).sum(1))
        print(name)
        for at in range(0, len(text), 92):
            print(f'    "{text[at:at + 92]}"')

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Draws the figures of record and writes them down as a table.

usage: bench.py BENCH.json FOLDER

Makes FOLDER/bench.svg and FOLDER/README.md.
"""

import json
import os
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "smc_lo"      # the same drawing for the same figures
matplotlib.rcParams["font.family"] = "sans-serif"
import matplotlib.pyplot as plt                      # noqa: E402

INK = "#6e7781"                                     # readable on white and on black
COLUMNS = {"tcp": ("TCP", "#8c959f"), "unix": ("AF_UNIX", "#bf8700"), "pipe": ("pipe", "#8250df"),
           "c_smc": ("C's SMC-D", "#0969da"), "smc_lo": ("smc_lo", "#2da44e")}
HEAD = """<!-- Written by scripts/bench --draw -->
# Figures of record

`make bench` measures them, `scripts/bench --draw` writes this page. All columns come from one boot
of the lab's `prod` kernel in a machine that counts instructions ({mode}: 1 instruction is 1 ns, one
processor), so they repeat to about a percent and say nothing about caches. A copy costs one instruction
for 8 bytes there. C's stack has a UEID set, and its connections were checked to be SMC-D; where one was
not, there is no figure. What each row measures says the head of `tests/bench/bench.c`; the programs of the
rows with names of programs stand in `scripts/guest/figures`, and while they run over SMC their sockets are
looked at five times a second, which is part of the figure. `pool_get` is what one call takes to get a ring
that was used before, followed by `scripts/profile --calls` in boots of its own; C's function also notes the
ring in the connection. Figures are medians; the spread is the largest distance between two samples of any
column.

"""


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def gain(row, column, other="tcp"):
    """How many times better than another a column is, whichever way the unit counts."""
    if not row[other] or not row[column]:
        return None
    ratio = row[column] / row[other]
    return ratio if row["better"] == "higher" else 1 / ratio


def table(rows):
    lines = ["| | unit | " + " | ".join(title for title, _ in COLUMNS.values()) +
             " | better than TCP by | than C by | spread |", "|---|---|" + "---:|" * (len(COLUMNS) + 3)]
    for row in rows:
        times, c_times = gain(row, "smc_lo"), gain(row, "smc_lo", "c_smc")
        spread = max([value for value in row["spread"].values() if value is not None], default=None)
        lines.append(
            f"| {row['name']} | {row['unit']} | " + " | ".join(number(row[column]) for column in COLUMNS) +
            f" | {'-' if times is None else f'{times:.2f}×'}"
            f" | {'-' if c_times is None else f'{c_times:.2f}×'}"
            f" | {'-' if spread is None else f'{100 * spread:.1f} %'} |")
    return "\n".join(lines) + "\n"


def draw(rows, path):
    """One bar for each column that a row has."""
    rows = [row for row in rows if gain(row, "smc_lo")]
    middles, bars, place = [], {column: [] for column in COLUMNS if column != "tcp"}, 0
    for row in rows:
        first = place
        for column, found in bars.items():
            value = gain(row, column)
            if value:
                found.append((place, value))
                place += 1
        middles.append((first + place - 1) / 2)
        place += 0.8                                 # between two rows
    figure, axes = plt.subplots(figsize=(8, 0.16 * place + 1))
    for column, found in bars.items():
        title, color = COLUMNS[column]
        drawn = axes.barh([at for at, _ in found], [value for _, value in found], height=1, color=color,
                          label=title)
        axes.bar_label(drawn, labels=[f"{value:.2f}" for _, value in found], padding=3, color=INK, fontsize=7)
    axes.set_yticks(middles, [row["name"] for row in rows])
    axes.margins(y=0.01)
    axes.axvline(1, color=INK, linewidth=1, zorder=0)
    axes.invert_yaxis()
    axes.set_title("Times better than TCP loopback (TCP = 1)", color=INK, fontsize=11)
    axes.tick_params(colors=INK)
    axes.legend(frameon=False, labelcolor=INK, fontsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})


def profiles(folder):
    """What scripts/profile --save has left, with its first line."""
    folder = os.path.join(folder, "profile")
    if not os.path.isdir(folder):
        return ""
    lines = ["", "Where the instructions go (`scripts/profile`), and [what follows from it](notes.md):", ""]
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found = [line.strip() for line in file if line.count(":") == 1 and "instructions a" in line]
        lines.append(f"* [{name.removesuffix('.txt')}](profile/{name}): {found[0].split(':', 1)[1].strip()}")
    return "\n".join(lines) + "\n"


def main(figures, folder):
    with open(figures, encoding="utf-8") as file:
        rows = json.load(file)
    draw(rows, os.path.join(folder, "bench.svg"))
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as file:
        file.write(HEAD.format(mode=rows[0]["mode"]) + table(rows) + "\n![times better than TCP](bench.svg)\n")
        file.write(profiles(folder))


main(*sys.argv[1:])

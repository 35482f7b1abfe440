#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Fills the table of the README between its markers and draws the same figures.

usage: readme.py RUN.json README.md PLOT.svg
"""

import json
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "smc_lo"      # the same drawing for the same figures
matplotlib.rcParams["font.family"] = "sans-serif"
import matplotlib.pyplot as plt                      # noqa: E402

BEGIN = "<!-- figures: scripts/readme -->"
END = "<!-- end of figures -->"
INK = "#6e7781"                                     # readable on white and on black
FASTER, SLOWER = "#2da44e", "#cf222e"


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def gain(row):
    """How many times better smc_lo is, whichever way the unit counts."""
    if not row["tcp"] or not row["smc_lo"]:
        return None
    ratio = row["smc_lo"] / row["tcp"]
    return ratio if row["better"] == "higher" else 1 / ratio


def table(rows):
    lines = ["| | unit | TCP | smc_lo | better by | SMC-D | errors |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        share = "-" if row["smcd_share"] is None else f"{100 * row['smcd_share']:.0f} %"
        times = gain(row)
        lines.append(f"| {row['name']} | {row['unit']} | {number(row['tcp'])} | {number(row['smc_lo'])} | "
                     f"{'-' if times is None else f'{times:.2f}×'} | {share} | {row['errors']} |")
    return "\n".join(lines)


def draw(rows, path):
    rows = [row for row in rows if gain(row)]
    values = [gain(row) for row in rows]
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(rows) + 1.1))
    bars = axes.barh([row["name"] for row in rows], values,
                     color=[FASTER if value >= 1 else SLOWER for value in values], height=0.6)
    axes.bar_label(bars, labels=[f"{value:.2f}×" for value in values], padding=4, color=INK)
    axes.axvline(1, color=INK, linewidth=1)
    axes.invert_yaxis()
    axes.set_xlim(0, max(values + [1]) * 1.15)
    axes.set_title("smc_lo against TCP loopback (TCP = 1, longer is better)", color=INK, fontsize=11)
    axes.tick_params(colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(INK)
    figure.tight_layout()
    figure.savefig(path, transparent=True, metadata={"Date": None})


def main(figures, readme, plot):
    with open(figures, encoding="utf-8") as file:
        rows = json.load(file)
    with open(readme, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    _, after = rest.split(END)
    draw(rows, plot)
    with open(readme, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n{table(rows)}\n\n![smc_lo against TCP]({plot})\n{END}{after}")


main(*sys.argv[1:])

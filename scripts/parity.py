#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Writes the results of scripts/parity as a page.

usage: parity.py PARITY.json PARITY.md
"""

import json
import platform
import subprocess
import sys

HEAD = """# Test suites that applications trust

Python's own tests of its network modules and redis-server's own suite, each run twice in one machine by `make parity`:
over TCP, and with all programs under `smc_run`. A test is alike when it ends as it does over TCP. One that does not is
run twice more over each: it is unsteady when it does not agree with itself over one of them, and a difference
otherwise. Exceptions are the differences that `scripts/guest/parity_exceptions` lists, with reasons.

This page is written by `scripts/parity`.
"""


def version(package):
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True,
                          check=True).stdout


def main(results, page):
    with open(results, encoding="utf-8") as file:
        rows = json.load(file)
    lines = [HEAD]
    lines.append(f"Python {platform.python_version()} and redis {version('redis-server')} of Debian, Linux "
                 f"{', '.join(sorted({row['kernel'] for row in rows}))}, two emulated processors.\n")
    lines.append("| | tests | skipped | alike | unsteady | exceptions | different | SMC-D |")
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    sums = [0] * 8
    for row in rows:
        counts = [row["tests"], row["skipped"], row["alike"], len(row["unsteady"]), len(row["exceptions"]),
                  len(row["different"]), row["smcd"], row["sockets"]]
        sums = [a + b for a, b in zip(sums, counts)]
        lines.append(line(row["item"], counts))
    lines.append(line("all", sums))
    lines.append("\nSMC-D: of the connected SMC sockets that sock_diag showed, looked at a few times a second; the others talk "
                 "to ends that are no\nSMC sockets, or had not finished their handshake. Of "
                 f"{sum(row['pairs'] for row in rows)} connections with an SMC socket at each end, "
                 f"{sum(sum(row['pairs_over_tcp'].values()) for row in rows)} were TCP.")
    for title, key in (("Exceptions", "exceptions"), ("Differences", "different"), ("Unsteady", "unsteady")):
        found = [(name, row[key][name] if key == "exceptions" else "") for row in rows for name in row[key]]
        if found:
            lines.append(f"\n## {title}\n")
            lines += [f"* `{name}`{': ' if reason else ''}{reason}" for name, reason in found]
    with open(page, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def line(name, counts):
    return f"| {name} | " + " | ".join(f"{count:,}" for count in counts[:-2]) + f" | {counts[-2]:,} of {counts[-1]:,} |"


main(*sys.argv[1:])

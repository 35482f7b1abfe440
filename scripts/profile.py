#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The table of scripts/profile: instructions of one operation by module and by function."""

import argparse
import array
import bisect
import collections
import statistics
import subprocess
import sys

USER_END = 1 << 47
PARTS = 5


def symbols(path):
    """Addresses of the kernel's functions in order, and their (module, name)."""
    found = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            address, kind, name, *module = line.split()
            if kind in "tTwW":
                found.setdefault(int(address, 16), (module[0].strip("[]") if module else "kernel", name))
    addresses = sorted(found)
    return addresses, [found[address] for address in addresses]


def readable(names):
    """Mangled names as Rust spells them."""
    text = subprocess.run(["llvm-cxxfilt-19"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, text.splitlines()))


def calls_of(trace, entry, addresses):
    """The instructions of every call of the function at `entry`, with all that ran until it came back."""
    steps = array.array("Q")
    with open(trace, "rb") as file:
        steps.frombytes(file.read())
    found = []
    count = before = None
    caller = (0, 0)
    for address, instructions in zip(steps[::2], steps[1::2]):
        if count is None:
            # Whoever ran last has called it, and is where it comes back to.
            if address == entry and before is not None:
                place = bisect.bisect_right(addresses, before)
                caller = (addresses[place - 1], addresses[place])
                count = instructions
        elif caller[0] <= address < caller[1]:
            found.append(count)
            count = None
        else:
            count += instructions
        before = address
    return found


def report_calls(function, trace, prefix, addresses, names):
    spelled = readable([name for _, name in names])
    entries = [address for address, (_, name) in zip(addresses, names) if spelled[name] == function]
    if len(entries) != 1:
        sys.exit(f"profile: {len(entries)} functions are named {function}")
    found = calls_of(trace, entries[0], addresses)
    if len(found) < PARTS:
        sys.exit(f"profile: {len(found)} calls of {function} seen")
    print(f"{function}: {statistics.median(found):.0f} instructions a call, with all it calls "
          f"(median of {len(found)}, {min(found)} to {max(found)})")
    size = len(found) // PARTS
    with open(prefix + ".calls", "w", encoding="ascii") as file:
        for part in range(PARTS):
            file.write(f"{statistics.median(found[part * size:(part + 1) * size]):.0f}\n")


def report_functions(args, addresses, names):
    entries = set(addresses)
    functions = collections.Counter()
    calls = collections.Counter()
    modules = collections.Counter()
    with open(args.raw, encoding="ascii") as file:
        for line in file:
            address, instructions, runs = line.split()
            address, runs = int(address, 16), int(runs)
            place = ("programs", "programs")
            if address >= USER_END:
                place = names[bisect.bisect_right(addresses, address) - 1]
                if address in entries:
                    calls[place] += runs
            functions[place] += int(instructions) * runs
            modules[place[0]] += int(instructions) * runs

    total = sum(modules.values())
    with open(args.prefix + ".row", encoding="ascii") as file:
        samples = [line.split() for line in file]
    per_sample = total / len(samples)
    value = sum(float(sample[1]) for sample in samples) / len(samples)
    name, unit = samples[0][0], samples[0][2]
    # A microsecond is a thousand instructions; other units do not say how many operations there were.
    operations, what = len(samples), "sample"
    if unit == "us":
        operations, what = operations * per_sample / 1000 / value, "operation"
    print(f"{name}: {value:.2f} {unit}, {total / operations:.0f} instructions a {what}")
    for module, count in modules.most_common():
        print(f"{count / operations:12.1f} {100 * count / total:5.1f} %  {module}")
    print(f"{'instructions':>12} {'share':>7} {'calls':>8}")
    spelled = readable([name for _, name in functions])
    for place, count in functions.most_common(args.lines):
        print(f"{count / operations:12.1f} {100 * count / total:5.1f} % {calls[place] / operations:8.2f}  "
              f"{place[0]}: {spelled[place[1]]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=60)
    parser.add_argument("--calls", help="a function")
    parser.add_argument("raw", help="with --calls the trace")
    parser.add_argument("prefix")
    args = parser.parse_args()

    addresses, names = symbols(args.prefix + ".symbols")
    if args.calls:
        report_calls(args.calls, args.raw, args.prefix, addresses, names)
    else:
        report_functions(args, addresses, names)


main()

"""Says which ratios got worse: a new table against the committed one.

    python -m benchmarks cpu --out build/benchmarks/speed-cpu.json
    python -m benchmarks guard docs/results/speed-cpu.json build/benchmarks/speed-cpu.json

Ratios alone are compared, since seconds depend on the machine and on what else it does. The exit status is 1 if any
ratio is worse by more than the tolerance.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table import Entry, number, read


def worse(before: Sequence[Entry], now: Sequence[Entry], tolerance: float) -> list[str]:
    """A sentence for each ratio that got worse by more than the tolerance, a factor of 1 + tolerance.

    >>> old, new = Entry("daes over EFD", 0.95, "×"), Entry("daes over EFD", 0.70, "×")
    >>> worse([old], [new], tolerance=0.15)
    ['daes over EFD: 0.7 × after 0.95 ×']
    >>> worse([old], [old], tolerance=0.15)
    []
    """
    known = {entry.what: entry for entry in before if entry.unit == "×"}
    found = []
    for entry in now:
        old = known.get(entry.what)
        if old is None or entry.unit != "×":
            continue
        change = old.value / entry.value if entry.higher else entry.value / old.value
        if change > 1 + tolerance:
            found.append(f"{entry.what}: {number(entry.value)} × after {number(old.value)} ×")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the committed table")
    parser.add_argument("now", type=Path, help="the new one")
    parser.add_argument("--tolerance", type=float, default=0.15, help="how much worse a ratio may be (0.15)")
    given = parser.parse_args()
    before, now = read(given.before), read(given.now)
    found = worse(before, now, given.tolerance)
    print("\n".join(found) or "no ratio got worse")
    if lacking := {entry.what for entry in before if entry.unit == "×"} - {entry.what for entry in now}:
        print(f"not measured: {'; '.join(sorted(lacking))}")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()

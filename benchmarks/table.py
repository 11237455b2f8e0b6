"""One table of measurements per machine: entries in a JSON file, shown in benchmarks/README.md."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import daes
from daes.experiments.fingerprint import code_fingerprint

README = Path(__file__).with_name("README.md")
RESULTS = Path(__file__).parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Entry:
    """One number of the table.

    Args:
        what: what was measured.
        value: the number.
        unit: "×" for a ratio, which can be compared between machines, or what else it counts.
        target: what is to be reached, None where there is nothing to reach.
        higher: whether more is better.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    higher: bool = True

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.higher else self.value <= self.target


def machine(device: str = "cpu") -> dict[str, Any]:
    """What the numbers were measured with, and how busy it was."""
    return {
        "daes": daes.__version__,
        "code": code_fingerprint(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(name: str, entries: Sequence[Entry], about: dict[str, Any], out: Path | None) -> None:
    """Write docs/results/speed-NAME.json and the table between its marks in README.md, or elsewhere only JSON.

    Of a table that is there already, entries that were not measured this time stay.
    """
    command = " ".join(Path(word).name if "/" in word else word for word in sys.argv)  # no folders of this machine
    path = out or RESULTS / f"speed-{name}.json"
    measured = {entry.what: entry for entry in entries}
    kept = [measured.pop(entry.what, entry) for entry in read(path)] if path.exists() else []
    entries = [*kept, *measured.values()]
    content = {"command": command, "machine": about, "entries": [asdict(entry) for entry in entries]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(f"wrote {path}")
    if out is None:
        text = README.read_text(encoding="utf-8")
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        _, _, after = rest.partition(f"<!-- /{name} -->")
        if not rest:
            raise SystemExit(f"{README} must have the marks <!-- {name} --> and <!-- /{name} -->")
        found = ", ".join(f"{what} {value}" for what, value in about.items() if value is not None)
        header = f"{'The last part' if kept else 'All'} by `{command}` ({found}):"
        shown = f"<!-- {name} -->\n{header}\n\n{table(entries)}<!-- /{name} -->{after}"
        README.write_text(before + shown, encoding="utf-8")


def read(path: Path) -> list[Entry]:
    """The entries of a file that `write` wrote."""
    return [Entry(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))["entries"]]


def table(entries: Sequence[Entry]) -> str:
    """The entries as a Markdown table."""
    lines = ["| what | measured | to reach | |", "| --- | ---: | ---: | --- |"]
    for entry in entries:
        sign = "≥" if entry.higher else "≤"
        target = "" if entry.target is None else f"{sign} {number(entry.target)} {entry.unit}"
        verdict = {None: "", True: "reached", False: "not reached"}[entry.reached]
        lines.append(f"| {entry.what} | {number(entry.value)} {entry.unit} | {target} | {verdict} |")
    return "\n".join([*lines, ""])


def number(value: float) -> str:
    """Three digits, thousands separated.

    >>> number(12345.6), number(0.9712), number(27000)
    ('12,300', '0.971', '27,000')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"

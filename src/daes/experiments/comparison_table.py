"""A comparison as tables of text: for a document, for a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from daes.backbone import BACKBONES
from daes.extras import require

if TYPE_CHECKING:
    from daes.experiments.comparison import Comparison

LEVEL = 0.05
"""Of significance."""
MARK = "†"

_MEASURE_NAMES = {
    "auc": "AUC",
    "logloss": "LogLoss",
    "half_auc": "AUC, second half",
    "half_logloss": "LogLoss, second half",
}
_SCOPES = {
    "stream": {
        "over the whole stream": ("auc", "logloss"),
        "over its second half": ("half_auc", "half_logloss"),
    },
    "paper": {"on the test part": ("auc", "logloss")},
}


@dataclass(frozen=True)
class Table:
    """A table as text, which of its cells stand out, and how many of its first columns are names."""

    header: list[str]
    rows: list[list[str]]
    best: list[list[bool]]
    names: int = 1


def higher_is_better(measure: str) -> bool:
    """Whether a larger value of the measure is the better one."""
    return measure.endswith("auc")


def make_tables(comparison: "Comparison") -> dict[str, Table]:
    """A table for each scope, and one of the tests."""
    tables = {scope: _table(comparison, *pair) for scope, pair in _SCOPES[comparison.protocol].items()}
    if comparison.tests:
        tables[f"{comparison.tests[0].subject} against the best baseline"] = _test_table(comparison)
    return tables


def make_notes(comparison: "Comparison") -> list[str]:
    """What the marks mean, and what is missing."""
    count = len(comparison.seeds)
    spread = f"Mean ± standard deviation of {count} seeds" if count > 1 else "One seed, hence no deviation and no test"
    notes = [f"{spread}; rank: mean over the backbones of the rank by AUC."]
    if any(test.p_value is not None for test in comparison.tests):
        notes.append(f"{MARK} better than the best baseline: two-tailed unpaired t-test, p < {LEVEL}.")
    notes += [f"Failed: {r.label} on {r.backbone}, seed {r.seed}: {r.error}" for r in comparison.failures]
    return notes


def as_markdown(tables: Mapping[str, Table], notes: Sequence[str]) -> str:
    """Tables and notes for a document; what stands out is bold."""
    parts = []
    for title, table in tables.items():
        lines = [table.header, ["---"] * table.names + ["---:"] * (len(table.header) - table.names)]
        for row, best in zip(table.rows, table.best, strict=True):
            lines.append([f"**{cell}**" if top else cell for cell, top in zip(row, best, strict=True)])
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"{title[0].upper()}{title[1:]}:\n\n{text}")
    return "\n\n".join([*parts, *notes])


def as_rich(tables: Mapping[str, Table], notes: Sequence[str]) -> Any:
    """Tables and notes for a terminal; what stands out is green."""
    rich, text = require("rich.table"), require("rich.text")
    box, console = require("rich.box"), require("rich.console")
    shown: list[Any] = []
    for title, table in tables.items():
        grid = rich.Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for place, name in enumerate(table.header):
            grid.add_column(name, justify="left" if place < table.names else "right")
        for row, best in zip(table.rows, table.best, strict=True):
            cells = zip(row, best, strict=True)
            grid.add_row(*(text.Text(cell, style="bold green" if top else "") for cell, top in cells))
        shown.append(grid)
    return console.Group(*shown, *(text.Text(note, style="dim") for note in notes))


def _table(comparison: "Comparison", auc: str, logloss: str) -> Table:
    columns = [(backbone, measure) for backbone in comparison.backbones for measure in (auc, logloss)]
    marked = {(t.backbone, t.measure, t.subject) for t in comparison.tests if t.better and t.significant}
    ranks = comparison.ranks(auc)
    rows = []
    for label in comparison.methods:
        cells = [
            f"{comparison.summary(label, *column)}{f' {MARK}' * ((*column, label) in marked)}" for column in columns
        ]
        rows.append([label, *cells, f"{ranks[label]:.2f}"])
    tops = [_top(comparison, *column) for column in columns]
    lowest = min(ranks.values())
    best = [[False, *(label in top for top in tops), ranks[label] == lowest] for label in comparison.methods]
    return Table(["method", *(_heading(*column) for column in columns), "rank"], rows, best)


def _test_table(comparison: "Comparison") -> Table:
    rows = [
        [
            BACKBONES[test.backbone].info.title,
            _MEASURE_NAMES[test.measure],
            test.baseline,
            f"{test.difference:+.4f}",
            "–" if test.p_value is None else f"{test.p_value:.2g}",
        ]
        for test in comparison.tests
    ]
    best = [[False, False, False, test.better, test.better and test.significant] for test in comparison.tests]
    return Table(["backbone", "measure", "best baseline", "difference", "p"], rows, best, names=3)


def _top(comparison: "Comparison", backbone: str, measure: str) -> set[str]:
    """The labels that are best in a column as it is printed."""
    means = {label: comparison.summary(label, backbone, measure).mean for label in comparison.methods}
    known = {label: round(mean, 4) for label, mean in means.items() if isfinite(mean)}
    if not known:
        return set()
    best = (max if higher_is_better(measure) else min)(known.values())
    return {label for label, mean in known.items() if mean == best}


def _heading(backbone: str, measure: str) -> str:
    return f"{BACKBONES[backbone].info.title} {'AUC' if higher_is_better(measure) else 'LogLoss'}"

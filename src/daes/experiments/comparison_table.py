"""The tables of a comparison, and the notes below them."""

from typing import TYPE_CHECKING

from daes.backbone import BACKBONES
from daes.experiments.significance import LEVEL
from daes.formatting import counted, fixed, p_value
from daes.table import Cell, Table

if TYPE_CHECKING:
    from daes.experiments.comparison import Comparison

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


def make_tables(comparison: "Comparison") -> list[Table]:
    """A table for each scope, and one of the tests."""
    tables = [_scores(comparison, scope, *pair) for scope, pair in _SCOPES[comparison.protocol].items()]
    return [*tables, _tests(comparison)] if comparison.tests else tables


def make_notes(comparison: "Comparison") -> list[str]:
    """What the marks mean, and what is missing."""
    seeds = len(comparison.seeds)
    several = f"Mean ± standard deviation of {counted(seeds, 'seed')}"
    spread = several if seeds > 1 else "One seed, hence no deviation and no test"
    notes = [f"{spread}; rank: mean over the backbones of the rank by AUC."]
    if any(test.p_value is not None for test in comparison.tests):
        notes.append(f"{MARK} better than the best baseline: two-tailed unpaired t-test, p < {LEVEL}.")
    notes += [f"Failed: {r.label} on {r.backbone}, seed {r.seed}: {r.error}" for r in comparison.failures]
    return notes


def _scores(comparison: "Comparison", scope: str, auc: str, logloss: str) -> Table:
    scores = comparison.scores
    columns = [(backbone, measure) for backbone in comparison.backbones for measure in (auc, logloss)]
    marked = {(t.subject, t.backbone, t.measure) for t in comparison.tests if t.better and t.significant}
    ranks = comparison.ranks(auc)
    rows: list[list[str | Cell]] = [
        [
            label,
            *(scores.cell(label, *column, mark=MARK if (label, *column) in marked else "") for column in columns),
            Cell(fixed(ranks[label], 2), strong=ranks[label] == min(ranks.values())),
        ]
        for label in comparison.methods
    ]
    titles = [f"{BACKBONES[backbone].title} {_MEASURE_NAMES[measure].split(',')[0]}" for backbone, measure in columns]
    return Table(["method", *titles, "rank"], rows, caption=scope)


def _tests(comparison: "Comparison") -> Table:
    rows: list[list[str | Cell]] = [
        [
            BACKBONES[test.backbone].title,
            _MEASURE_NAMES[test.measure],
            test.baseline,
            Cell(fixed(test.difference, sign=True), strong=test.better),
            Cell(p_value(test.p_value), strong=test.better and test.significant),
        ]
        for test in comparison.tests
    ]
    head = ["backbone", "measure", "best baseline", "difference", "p"]
    caption = f"{comparison.tests[0].subject} against the best baseline"
    return Table(head, rows, caption=caption, left=frozenset({0, 1, 2}))

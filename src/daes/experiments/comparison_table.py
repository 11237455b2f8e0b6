"""The tables of a comparison, and the notes below them."""

from typing import TYPE_CHECKING

from daes.backbone import BACKBONES
from daes.experiments.method_tests import ROW_TESTS, MethodTest
from daes.experiments.row_tests import BLOCKS
from daes.experiments.significance import LEVEL
from daes.formatting import NONE, counted, fixed, p_value
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
    """The scores of each scope, the learning curves, and the tests."""
    tables = [_scores(comparison, scope, *pair) for scope, pair in _SCOPES[comparison.protocol].items()]
    if comparison.protocol == "stream":
        tables += [eighths_table(comparison, backbone) for backbone in comparison.backbones]
    return [*tables, _tests(comparison)] if comparison.best_tests else tables


def make_notes(comparison: "Comparison") -> list[str]:
    """What the marks mean, and what is missing."""
    seeds = len(comparison.seeds)
    spread = f"Mean ± standard deviation of {counted(seeds, 'seed')}" if seeds > 1 else "One seed, hence no deviation"
    notes = [f"{spread}; rank: mean over the backbones of the rank by AUC."]
    if comparison.tests:
        notes.append(
            f"{MARK} better than the best baseline: {ROW_TESTS}, p < {LEVEL} in each after Holm's correction for "
            f"{counted(len(comparison.tests), 'comparison')}. 95 %: interval of the block bootstrap."
        )
    elif len(comparison.methods) > 1:
        notes.append(f"Nothing is tested: a test needs the scores of {BLOCKS} rows or more, of both methods.")
    notes += [f"Failed: {r.label} on {r.backbone}, seed {r.seed}: {r.error}" for r in comparison.failures]
    return notes


def eighths_table(comparison: "Comparison", backbone: str) -> Table:
    """AUC of every method on each eighth of the stream; the best of each eighth is strong."""
    curves = {label: [fixed(v) for v in comparison.eighths(label, backbone)] for label in comparison.methods}
    best = [max(column) for column in zip(*filter(None, curves.values()), strict=True)]
    rows = [
        [
            label,
            *(Cell(value, strong=value == top) for value, top in zip(curve or [NONE] * len(best), best, strict=True)),
        ]
        for label, curve in curves.items()
    ]
    head = ["method", *(f"{part}/{len(best)}" for part in range(1, len(best) + 1))]
    return Table(head, rows, caption=f"AUC by eighth of the stream, {BACKBONES[backbone].title}")


def difference_cells(test: MethodTest) -> list[str]:
    """The difference of a test, its interval, and the p-value of each test."""
    interval = f"{fixed(test.low, sign=True)} to {fixed(test.high, sign=True)}"
    return [fixed(test.difference, sign=True), interval, p_value(test.delong), p_value(test.bootstrap)]


def _scores(comparison: "Comparison", scope: str, auc: str, logloss: str) -> Table:
    scores = comparison.scores
    columns = [(backbone, measure) for backbone in comparison.backbones for measure in (auc, logloss)]
    marked = {(t.subject, t.backbone, t.measure) for t in comparison.best_tests if t.better and t.significant}
    ranks = comparison.ranks(auc)
    rows = [
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
    rows = [
        [
            BACKBONES[test.backbone].title,
            _MEASURE_NAMES[test.measure],
            test.baseline,
            Cell(difference, strong=test.better),
            *rest,
            Cell(p_value(test.p_value), strong=test.better and test.significant),
        ]
        for test in comparison.best_tests
        for difference, *rest in [difference_cells(test)]
    ]
    head = ["backbone", "measure", "best baseline", "difference", "95 %", "DeLong p", "bootstrap p", "p, Holm"]
    caption = f"{comparison.tests[0].subject} against the best baseline, tested on the rows"
    return Table(head, rows, caption=caption, left=frozenset({0, 1, 2}))

"""The table of a comparison: means, deviations, tests and ranks, to read and to print."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from statistics import fmean, stdev
from typing import Any

from daes.backbone import BACKBONES
from daes.embedding import DAES, METHODS
from daes.extras import require
from daes.training.cell import MEASURES, CellResult, Protocol
from daes.training.folder import strict
from daes.training.significance import average_rank, t_test

FORMAT = "daes.comparison"
VERSION = 1
LEVEL = 0.05
MARK = "†"

_MEASURE_NAMES = {
    "auc": "AUC",
    "logloss": "LogLoss",
    "half_auc": "AUC, second half",
    "half_logloss": "LogLoss, second half",
}
_SCOPES: dict[Protocol, dict[str, tuple[str, str]]] = {
    "stream": {
        "over the whole stream": ("auc", "logloss"),
        "over its second half": ("half_auc", "half_logloss"),
    },
    "paper": {"on the test part": ("auc", "logloss")},
}


@dataclass(frozen=True)
class Summary:
    """A measure of one method on one backbone over the seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds; NaN without any."""
        return fmean(self.values) if self.values else float("nan")

    @property
    def std(self) -> float | None:
        """Standard deviation between seeds (n − 1); None with fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        if not self.values:
            return "–"
        return f"{self.mean:.4f}" + ("" if self.std is None else f" ± {self.std:.4f}")


@dataclass(frozen=True)
class Test:
    """The subject against the best baseline in one column; `p_value` is None with fewer than two seeds."""

    __test__ = False

    backbone: str
    measure: str
    subject: str
    baseline: str
    difference: float
    p_value: float | None

    @property
    def better(self) -> bool:
        """Whether the subject has the better mean: a higher AUC, a lower LogLoss."""
        return self.difference > 0 if higher_is_better(self.measure) else self.difference < 0

    @property
    def significant(self) -> bool:
        """Whether the means differ at the 5 % level."""
        return self.p_value is not None and self.p_value < LEVEL


@dataclass(frozen=True)
class Comparison:
    """Results of methods × backbones × seeds on one stream, and what follows from them.

    Args:
        protocol: how they were judged.
        methods: labels, in the table's order.
        backbones: names, likewise.
        seeds: likewise.
        results: one a cell that is done, or has failed.
        subject: the label that is tested against the best baseline; see `default_subject`.
        about: what else is to be known of the comparison: data, schema, environment.
    """

    protocol: Protocol
    methods: tuple[str, ...]
    backbones: tuple[str, ...]
    seeds: tuple[int, ...]
    results: tuple[CellResult, ...]
    subject: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measures(self) -> tuple[str, ...]:
        """What the protocol measures."""
        return MEASURES[self.protocol]

    @property
    def failures(self) -> list[CellResult]:
        """The cells that gave an error."""
        return [result for result in self.results if result.error is not None]

    @cached_property
    def _summaries(self) -> dict[tuple[str, str, str], Summary]:
        found: dict[tuple[str, str, str], list[float]] = {}
        for result in sorted(self.results, key=lambda result: result.seed):
            if result.error is None:
                for measure in self.measures:
                    found.setdefault((result.label, result.backbone, measure), []).append(result.metrics[measure])
        return {place: Summary(tuple(values)) for place, values in found.items()}

    def summary(self, label: str, backbone: str, measure: str) -> Summary:
        """A measure of one method on one backbone over the seeds."""
        return self._summaries.get((label, backbone, measure), Summary(()))

    def rows(self) -> list[dict[str, Any]]:
        """The table as data, one entry for each method on each backbone."""
        return [
            {
                "label": label,
                "backbone": backbone,
                "seeds": len(self.summary(label, backbone, self.measures[0]).values),
                "measures": {
                    measure: {"mean": of.mean, "std": of.std, "values": list(of.values)}
                    for measure in self.measures
                    for of in [self.summary(label, backbone, measure)]
                },
                "seconds": sum(r.seconds for r in self.results if (r.label, r.backbone) == (label, backbone)),
            }
            for label in self.methods
            for backbone in self.backbones
        ]

    @cached_property
    def tests(self) -> list[Test]:
        """The subject against the best baseline, for each backbone and measure where both have results."""
        columns = [(backbone, measure) for backbone in self.backbones for measure in self.measures]
        return [test for column in columns if (test := self._test(*column)) is not None]

    def _test(self, backbone: str, measure: str) -> Test | None:
        subject, baselines = self.default_subject()
        rivals = {label: self.summary(label, backbone, measure) for label in baselines}
        rivals = {label: rival for label, rival in rivals.items() if isfinite(rival.mean)}
        mine = Summary(()) if subject is None else self.summary(subject, backbone, measure)
        if subject is None or not isfinite(mine.mean) or not rivals:
            return None
        pick = max if higher_is_better(measure) else min
        best = pick(rivals, key=lambda label: rivals[label].mean)
        enough = min(len(mine.values), len(rivals[best].values)) > 1
        p_value = t_test(mine.values, rivals[best].values).p_value if enough else None
        return Test(backbone, measure, subject, best, mine.mean - rivals[best].mean, p_value)

    def default_subject(self) -> tuple[str | None, tuple[str, ...]]:
        """The label to test, and those it is tested against.

        It is the one asked for, else `daes`, else the first of the DAES methods, else the one with the best first
        measure. DAES methods are no baselines of each other.
        """
        kinds = {result.label: METHODS.get(result.method) for result in self.results}
        ours = [label for label in self.methods if kinds.get(label) is DAES]
        subject = self.subject or ("daes" if "daes" in ours else ours[0] if ours else self._best())
        others = [label for label in self.methods if label != subject]
        return subject, tuple(label for label in others if subject not in ours or label not in ours)

    def ranks(self, measure: str) -> dict[str, float]:
        """The average rank of each method over the backbones, 1 being the best; without a result it is last."""
        table = [[self.summary(label, backbone, measure).mean for backbone in self.backbones] for label in self.methods]
        ranks = average_rank(table, higher_is_better=higher_is_better(measure))
        return dict(zip(self.methods, ranks.tolist(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values: the layout of comparison.json, see docs/run-folder.md."""
        subject, _ = self.default_subject()
        content: dict[str, Any] = strict(
            {
                "format": FORMAT,
                "version": VERSION,
                **self.about,
                "protocol": self.protocol,
                "measures": self.measures,
                "methods": self.methods,
                "backbones": self.backbones,
                "seeds": self.seeds,
                "subject": subject,
                "rows": self.rows(),
                "tests": [
                    {**vars(test), "better": test.better, "significant": test.significant} for test in self.tests
                ],
                "ranks": {measure: self.ranks(measure) for measure in self.measures if higher_is_better(measure)},
                "cells": [result.to_dict() for result in self.results if result.error is None],
                "failures": [
                    {"label": r.label, "backbone": r.backbone, "seed": r.seed, "error": r.error} for r in self.failures
                ],
            }
        )
        return content

    def to_json(self) -> str:
        """Everything as one JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Comparison":
        """What `to_dict` gave."""
        if content.get("format") != FORMAT or content.get("version") != VERSION:
            raise ValueError(f'a comparison must have "format": "{FORMAT}" and "version": {VERSION}')
        protocol: Protocol = content["protocol"]
        failures = [
            CellResult(r["label"], r["label"], r["backbone"], r["seed"], protocol, error=r["error"])
            for r in content["failures"]
        ]
        results = [CellResult.from_dict(cell) for cell in content["cells"]]
        return cls(
            protocol=protocol,
            methods=tuple(content["methods"]),
            backbones=tuple(content["backbones"]),
            seeds=tuple(content["seeds"]),
            results=(*results, *failures),
            subject=content["subject"],
            about={name: content[name] for name in ("created", "environment", "data", "schema") if name in content},
        )

    def tables(self) -> dict[str, "Table"]:
        """The tables to print, by their titles."""
        tables = {scope: self._table(*measures) for scope, measures in _SCOPES[self.protocol].items()}
        if self.tests:
            tables[f"{self.tests[0].subject} against the best baseline"] = self._test_table()
        return tables

    def notes(self) -> list[str]:
        """What the tables' marks mean, and what is missing; a sentence or two each."""
        seeds = f"{len(self.seeds)} seed" + ("s" if len(self.seeds) != 1 else "")
        notes = [f"Mean ± standard deviation of {seeds}; rank: mean over the backbones of the rank by AUC."]
        if any(test.p_value is not None for test in self.tests):
            notes.append(f"{MARK} better than the best baseline: two-tailed unpaired t-test, p < {LEVEL}.")
        notes += [f"Failed: {r.label} on {r.backbone}, seed {r.seed}: {r.error}" for r in self.failures]
        return notes

    def to_markdown(self) -> str:
        """The tables for a document: the best of a column in bold, ties included."""
        parts = []
        for title, table in self.tables().items():
            lines = [table.header, ["---"] * table.names + ["---:"] * (len(table.header) - table.names)]
            for row, best in zip(table.rows, table.best, strict=True):
                lines.append([f"**{cell}**" if top else cell for cell, top in zip(row, best, strict=True)])
            text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
            parts.append(f"{title[0].upper()}{title[1:]}:\n\n{text}")
        return "\n\n".join([*parts, *self.notes()])

    def __rich__(self) -> Any:
        """The tables for a terminal."""
        rich, text = require("rich.table"), require("rich.text")
        box, console = require("rich.box"), require("rich.console")
        shown: list[Any] = []
        for title, table in self.tables().items():
            grid = rich.Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
            for place, name in enumerate(table.header):
                grid.add_column(name, justify="left" if place < table.names else "right")
            for row, best in zip(table.rows, table.best, strict=True):
                cells = zip(row, best, strict=True)
                grid.add_row(*(text.Text(cell, style="bold green" if top else "") for cell, top in cells))
            shown.append(grid)
        return console.Group(*shown, *(text.Text(note, style="dim") for note in self.notes()))

    def _table(self, auc: str, logloss: str) -> "Table":
        columns = [(backbone, measure) for backbone in self.backbones for measure in (auc, logloss)]
        header = ["method", *(_heading(backbone, measure) for backbone, measure in columns), "rank"]
        marked = {
            (test.backbone, test.measure, test.subject) for test in self.tests if test.better and test.significant
        }
        ranks = self.ranks(auc)
        rows = [
            [
                label,
                *(
                    f"{self.summary(label, backbone, measure)}{f' {MARK}' * ((backbone, measure, label) in marked)}"
                    for backbone, measure in columns
                ),
                f"{ranks[label]:.2f}",
            ]
            for label in self.methods
        ]
        tops = [self._top(backbone, measure) for backbone, measure in columns]
        lowest = min(ranks.values())
        best = [[False, *(label in top for top in tops), ranks[label] == lowest] for label in self.methods]
        return Table(header, rows, best)

    def _test_table(self) -> "Table":
        rows = [
            [
                BACKBONES[test.backbone].info.title,
                _MEASURE_NAMES[test.measure],
                test.baseline,
                f"{test.difference:+.4f}",
                "–" if test.p_value is None else f"{test.p_value:.2g}",
            ]
            for test in self.tests
        ]
        best = [[False, False, False, test.better, test.better and test.significant] for test in self.tests]
        return Table(["backbone", "measure", "best baseline", "difference", "p"], rows, best, names=3)

    def _top(self, backbone: str, measure: str) -> set[str]:
        """The labels that are best in a column as it is printed."""
        means = {label: self.summary(label, backbone, measure).mean for label in self.methods}
        known = {label: round(mean, 4) for label, mean in means.items() if isfinite(mean)}
        if not known:
            return set()
        best = (max if higher_is_better(measure) else min)(known.values())
        return {label for label, mean in known.items() if mean == best}

    def _best(self) -> str | None:
        ranks = self.ranks(self.measures[0])
        return min(ranks, key=lambda label: ranks[label]) if ranks else None


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


def _heading(backbone: str, measure: str) -> str:
    return f"{BACKBONES[backbone].info.title} {'AUC' if higher_is_better(measure) else 'LogLoss'}"

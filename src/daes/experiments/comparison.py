"""What follows from the results of a comparison: means, deviations, tests and ranks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from statistics import fmean, stdev
from typing import Any

from daes.embedding import DAES, METHODS
from daes.experiments.cell import MEASURES, CellResult, Protocol
from daes.experiments.comparison_table import (
    LEVEL,
    Table,
    as_markdown,
    as_rich,
    higher_is_better,
    make_notes,
    make_tables,
)
from daes.experiments.significance import average_rank, t_test
from daes.storage.run_folder import strict

__all__ = ["Comparison", "Summary", "Test", "higher_is_better"]

FORMAT = "daes.comparison"
VERSION = 1


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

    def tables(self) -> dict[str, Table]:
        """The tables to print, by their titles."""
        return make_tables(self)

    def notes(self) -> list[str]:
        """What the tables' marks mean, and what is missing; a sentence or two each."""
        return make_notes(self)

    def to_markdown(self) -> str:
        """The tables for a document: the best of a column in bold, ties included."""
        return as_markdown(self.tables(), self.notes())

    def __rich__(self) -> Any:
        """The tables for a terminal."""
        return as_rich(self.tables(), self.notes())

    def _best(self) -> str | None:
        ranks = self.ranks(self.measures[0])
        return min(ranks, key=lambda label: ranks[label]) if ranks else None

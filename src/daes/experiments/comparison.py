"""The results of a comparison: means, deviations, tests and ranks, as data and as tables."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from typing import Any

from daes.backbone import BACKBONES
from daes.embedding import DAES, METHODS
from daes.experiments.method_tests import ROW_TESTS, MethodTest, method_tests
from daes.experiments.row_tests import BLOCKS
from daes.experiments.scores import ScoreTable, SeedScores, collect_scores, higher_is_better
from daes.experiments.significance import LEVEL
from daes.experiments.trial import MEASURES, Protocol, TrialResult
from daes.extras import require
from daes.formatting import NONE, counted, fixed, p_value
from daes.storage.run_folder import strict
from daes.table import Cell, Table

FORMAT = "daes.comparison"
VERSION = 2
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
class Comparison:
    """Results of methods × backbones × seeds on one stream, and their statistics.

    Args:
        protocol: how the trials were evaluated.
        methods: labels, in the order of the table.
        backbones: names, in the order of the table.
        seeds: the seeds.
        results: one per trial that has finished or failed.
        subject: the label that is tested against the baselines; see `default_subject`.
        tests: the subject against each baseline in each column, on the rows; see `tested`.
        about: when, on what and where it was run: `created`, `data`, `schema`, `environment`.
    """

    protocol: Protocol
    methods: tuple[str, ...]
    backbones: tuple[str, ...]
    seeds: tuple[int, ...]
    results: tuple[TrialResult, ...]
    subject: str | None = None
    tests: tuple[MethodTest, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures of the protocol."""
        return MEASURES[self.protocol]

    @property
    def finished(self) -> list[TrialResult]:
        """The trials that did not fail."""
        return [result for result in self.results if result.error is None]

    @property
    def failures(self) -> list[TrialResult]:
        """The trials that failed."""
        return [result for result in self.results if result.error is not None]

    def trials(self, label: str, backbone: str) -> list[TrialResult]:
        """The finished trials of one method on one backbone, one per seed."""
        return [result for result in self.finished if (result.label, result.backbone) == (label, backbone)]

    @cached_property
    def scores(self) -> ScoreTable:
        """The scores of all methods on all backbones."""
        by_seed = sorted(self.finished, key=lambda result: result.seed)
        found = collect_scores(by_seed, {measure: measure for measure in self.measures})
        return ScoreTable.of({label: found.get(label, {}) for label in self.methods})

    def summary(self, label: str, backbone: str, measure: str) -> SeedScores:
        """A measure of one method on one backbone over the seeds."""
        return self.scores.get(label, backbone, measure)

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain data, one entry per method and backbone."""
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
                "eighths": {measure: self.eighths(label, backbone, measure) for measure in ("auc", "logloss")},
                "seconds": sum(trial.seconds for trial in self.trials(label, backbone)),
            }
            for label, backbone in product(self.methods, self.backbones)
        ]

    def tested(self) -> "Comparison":
        """This comparison with the tests that the predictions of its results allow, corrected for their number."""
        subject, baselines = self.default_subject()
        pairs = [] if subject is None else [(subject, baseline) for baseline in baselines]
        return replace(self, tests=method_tests(self.results, pairs, self.backbones, self.measures))

    @cached_property
    def best_tests(self) -> list[MethodTest]:
        """The tests against the best baseline of each column, in the order of the columns."""
        _, baselines = self.default_subject()
        columns = list(product(self.backbones, self.measures))
        found = [t for t in self.tests if t.baseline == self.scores.best(t.backbone, t.measure, baselines)]
        return sorted(found, key=lambda test: columns.index((test.backbone, test.measure)))

    def eighths(self, label: str, backbone: str, measure: str = "auc") -> list[float]:
        """A learning curve: the mean over the seeds of the measure on each eighth of the rows; empty if not known."""
        curves = [trial.eighths[measure] for trial in self.trials(label, backbone) if trial.eighths]
        return [SeedScores.of(values).mean for values in zip(*curves, strict=True)]

    def default_subject(self) -> tuple[str | None, tuple[str, ...]]:
        """The label to test, and those it is tested against.

        It is `subject` if given, else `daes`, else the first of the DAES methods, else the label that ranks best by the
        first measure. DAES methods are not baselines of each other.
        """
        daes = {r.label for r in self.results if r.method in METHODS and METHODS[r.method].cls is DAES}
        ours = [label for label in self.methods if label in daes]
        ranks = {} if self.subject or ours else self.ranks(self.measures[0])
        best = min(ranks, key=lambda label: ranks[label]) if ranks else None
        subject = self.subject or ("daes" if "daes" in ours else ours[0] if ours else best)
        others = [label for label in self.methods if label != subject]
        return subject, tuple(label for label in others if subject not in ours or label not in ours)

    def ranks(self, measure: str) -> dict[str, float]:
        """The average rank of each method over the backbones, 1 being the best; without a result it ranks last."""
        return self.scores.ranks(measure, self.backbones, self.methods)

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
                "trials": [result.to_dict() for result in self.finished],
                "failures": [
                    {"label": r.label, "backbone": r.backbone, "seed": r.seed, "error": r.error} for r in self.failures
                ],
            }
        )
        return content

    def to_json(self) -> str:
        """`to_dict` as one JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Comparison":
        """The inverse of `to_dict`."""
        if content.get("format") != FORMAT or content.get("version") != VERSION:
            raise ValueError(f'a comparison must have "format": "{FORMAT}" and "version": {VERSION}')
        protocol: Protocol = content["protocol"]
        failures = [
            TrialResult(r["label"], r["label"], r["backbone"], r["seed"], protocol, error=r["error"])
            for r in content["failures"]
        ]
        results = [TrialResult.from_dict(trial) for trial in content["trials"]]
        return cls(
            protocol=protocol,
            methods=tuple(content["methods"]),
            backbones=tuple(content["backbones"]),
            seeds=tuple(content["seeds"]),
            results=(*results, *failures),
            subject=content["subject"],
            tests=tuple(MethodTest(**{f.name: test[f.name] for f in fields(MethodTest)}) for test in content["tests"]),
            about={name: content[name] for name in ("created", "environment", "data", "schema") if name in content},
        )

    def tables(self) -> list[Table]:
        """The tables to print: the scores of each scope, the learning curves, and the tests."""
        tables = [self._score_table(scope, *pair) for scope, pair in _SCOPES[self.protocol].items()]
        return [*tables, *self.eighths_tables(), *([self._test_table()] if self.best_tests else [])]

    def _score_table(self, scope: str, auc: str, logloss: str) -> Table:
        columns = list(product(self.backbones, (auc, logloss)))
        marked = {(t.subject, t.backbone, t.measure) for t in self.best_tests if t.better and t.significant}
        ranks = self.ranks(auc)
        rows = [
            [
                label,
                *(self.scores.cell(label, *col, mark=MARK if (label, *col) in marked else "") for col in columns),
                Cell(fixed(ranks[label], 2), strong=ranks[label] == min(ranks.values())),
            ]
            for label in self.methods
        ]
        titles = [f"{BACKBONES[backbone].title} {_MEASURE_NAMES[name].split(',')[0]}" for backbone, name in columns]
        return Table(["method", *titles, "rank"], rows, caption=scope)

    def eighths_tables(self) -> list[Table]:
        """`eighths_table` of each backbone with results, for the streaming protocol."""
        tables = [self.eighths_table(backbone) for backbone in self.backbones if self.protocol == "stream"]
        return [table for table in tables if len(table.head) > 1]

    def eighths_table(self, backbone: str) -> Table:
        """AUC of every method on each eighth of the stream; the best of each eighth is strong."""
        curves = {label: [fixed(value) for value in self.eighths(label, backbone)] for label in self.methods}
        columns = zip(*filter(None, curves.values()), strict=True)
        best = [max((value for value in column if value != NONE), default=None) for column in columns]
        rows: list[list[object]] = []
        for label, known in curves.items():
            curve = known or [NONE] * len(best)
            rows.append([label, *(Cell(value, strong=value == top) for value, top in zip(curve, best, strict=True))])
        head = ["method", *(f"{part}/{len(best)}" for part in range(1, len(best) + 1))]
        return Table(head, rows, caption=f"AUC by eighth of the stream, {BACKBONES[backbone].title}")

    def _test_table(self) -> Table:
        rows = [
            [
                BACKBONES[test.backbone].title,
                _MEASURE_NAMES[test.measure],
                test.baseline,
                Cell(difference, strong=test.better),
                *rest,
                Cell(p_value(test.p_value), strong=test.better and test.significant),
            ]
            for test in self.best_tests
            for difference, *rest in [test.cells()]
        ]
        head = ["backbone", "measure", "best baseline", "difference", "95 %", "DeLong p", "bootstrap p", "p, Holm"]
        caption = f"{self.tests[0].subject} against the best baseline, tested on the rows"
        return Table(head, rows, caption=caption, left=frozenset({0, 1, 2}))

    def notes(self) -> list[str]:
        """What the marks of the tables mean, and what is missing; a sentence or two each."""
        several = len(self.seeds) > 1
        spread = f"Mean ± standard deviation of {len(self.seeds)} seeds" if several else "One seed, hence no deviation"
        notes = [f"{spread}; rank: mean over the backbones of the rank by AUC."]
        if self.tests:
            notes.append(
                f"{MARK} better than the best baseline: {ROW_TESTS}, p < {LEVEL} in each after Holm's correction for "
                f"{counted(len(self.tests), 'comparison')}. 95 %: interval of the block bootstrap."
            )
        elif len(self.methods) > 1:
            notes.append(f"Nothing is tested: a test needs the scores of {BLOCKS} rows or more, of both methods.")
        return [*notes, *(f"Failed: {r.label} on {r.backbone}, seed {r.seed}: {r.error}" for r in self.failures)]

    def to_markdown(self) -> str:
        """The tables for a document: the best of each column in bold, ties included."""
        parts = [f"{table.caption[0].upper()}{table.caption[1:]}:\n\n{table.markdown()}" for table in self.tables()]
        return "\n\n".join([*parts, *self.notes()])

    def __rich__(self) -> Any:
        """The tables for a terminal."""
        notes = (require("rich.text").Text(note, style="dim") for note in self.notes())
        return require("rich.console").Group(*self.tables(), *notes)

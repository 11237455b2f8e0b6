"""Tests of one method against others on the rows of the same stream, corrected for the number of tests."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import product

import numpy as np

from daes.experiments.predictions import Predictions
from daes.experiments.row_tests import RowStatistics, compare_rows
from daes.experiments.scores import BaselineTest
from daes.experiments.significance import holm
from daes.experiments.trial import TrialResult
from daes.formatting import fixed, p_value

HALF = "half_"
"""Prefix of the measures over the second half of the stream."""
ROW_TESTS = "paired DeLong test (AUC) and bootstrap over 64 blocks of consecutive rows"
"""The tests in words; Holm's correction is over everything that was compared."""


@dataclass(frozen=True)
class MethodTest(BaselineTest):
    """The subject against one baseline in one column of a table, tested on the rows.

    Args:
        backbone, measure: the column.
        subject, baseline: labels.
        difference: the subject's measure minus the baseline's, each the mean of its seeds.
        low, high: interval of the difference that contains 95 % of the block bootstrap's replicates.
        delong, bootstrap: uncorrected p-value of each test; there is no DeLong test of LogLoss.
        p_value: the larger of both, after Holm's correction over all tests of the call.
        rows: number of rows tested on.
    """

    p_value: float
    low: float
    high: float
    delong: float | None
    bootstrap: float
    rows: int

    def cells(self) -> list[str]:
        """The difference, its interval, and the p-value of each test, for a table."""
        interval = f"{fixed(self.low, sign=True)} to {fixed(self.high, sign=True)}"
        return [fixed(self.difference, sign=True), interval, p_value(self.delong), p_value(self.bootstrap)]


def method_tests(
    results: Sequence[TrialResult],
    pairs: Iterable[tuple[str, str]],
    backbones: Sequence[str],
    measures: Sequence[str],
) -> tuple[MethodTest, ...]:
    """Test pairs of labels (subject, baseline) on each backbone in each measure, with one correction for all tests.

    A test uses the rows that every trial of both labels has a score for. What cannot be tested is left out: a label
    without predictions, labels that were evaluated on different rows, an undefined measure.
    """

    @cache
    def load(label: str, backbone: str) -> list[Predictions]:
        loaded = [r.predictions() for r in results if (r.label, r.backbone) == (label, backbone)]
        return [seed for seed in loaded if seed is not None]

    @cache
    def statistics(label: str, backbone: str, half: bool) -> RowStatistics:
        return RowStatistics.of([_part(seed, half) for seed in load(label, backbone)])

    found = []
    for backbone, labels in product(backbones, pairs):
        sides = [load(label, backbone) for label in labels]
        both = [*sides[0], *sides[1]]
        if not all(sides) or not all(np.array_equal(seed.labels, both[0].labels) for seed in both):
            continue
        scored = reduce(np.logical_and, (seed.scored for seed in both))
        for half in sorted({measure.startswith(HALF) for measure in measures}):
            rows = scored[len(scored) // 2 :] if half else scored
            if not rows.any():
                continue
            if rows.all():
                first, second = (statistics(label, backbone, half) for label in labels)
            else:
                first, second = (RowStatistics.of([_part(seed, half)[rows] for seed in side]) for side in sides)
            for measure in (measure for measure in measures if measure.startswith(HALF) == half):
                test = compare_rows(first, second, measure.removeprefix(HALF))
                if test is not None:
                    numbers = {**vars(test), "p_value": test.p_value, "rows": int(rows.sum())}
                    found.append(MethodTest(backbone, measure, *labels, **numbers))
    corrected = holm([test.p_value for test in found])
    return tuple(replace(test, p_value=p) for test, p in zip(found, corrected.tolist(), strict=True))


def _part(predictions: Predictions, half: bool) -> Predictions:
    return predictions.second_half if half else predictions

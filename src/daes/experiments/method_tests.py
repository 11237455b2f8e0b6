"""One method against others on the same stream, tested on its rows and corrected for all that was tested."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from daes.experiments.predictions import Predictions
from daes.experiments.row_tests import RowStatistics, compare_rows
from daes.experiments.scores import Tested
from daes.experiments.significance import holm
from daes.experiments.trial import TrialResult

HALF = "half_"
"""What the measures over the second half of the stream begin with."""
ROW_TESTS = "paired DeLong test (AUC) and bootstrap over 64 blocks of consecutive rows"
"""What decides, in words; Holm's correction is over everything that was compared."""


@dataclass(frozen=True)
class MethodTest(Tested):
    """The subject against one baseline in one column of a table, on the rows.

    Args:
        backbone, measure: the column.
        subject, baseline: labels.
        difference: the subject's measure less the baseline's, each the mean of its seeds.
        low, high: the interval of the difference that holds 95 % of the block bootstrap's replicates.
        delong, bootstrap: p of each test, uncorrected; no DeLong of a LogLoss.
        p_value: the larger of both, by Holm's correction over everything that was compared with it.
        rows: how many rows it is based on.
    """

    backbone: str
    measure: str
    subject: str
    baseline: str
    difference: float
    low: float
    high: float
    delong: float | None
    bootstrap: float
    p_value: float
    rows: int


def method_tests(
    results: Sequence[TrialResult],
    pairs: Iterable[tuple[str, str]],
    backbones: Sequence[str],
    measures: Sequence[str],
) -> tuple[MethodTest, ...]:
    """Test pairs of labels (subject, baseline) on each backbone in each measure, with one correction for all of them.

    Rows are those that every trial of both has a score for. What cannot be tested is left out: a label without
    predictions, labels that were judged on different rows, a measure that is not defined.
    """
    judged = _Judged(results)
    wanted = list(pairs)
    found = [
        test
        for backbone in backbones
        for subject, baseline in wanted
        for test in _pair(judged, subject, baseline, backbone, measures)
    ]
    corrected = holm([test.p_value for test in found])
    return tuple(replace(test, p_value=p) for test, p in zip(found, corrected.tolist(), strict=True))


class _Judged:
    """Predictions by label and backbone, and the statistics that several tests need, each computed once."""

    def __init__(self, results: Sequence[TrialResult]) -> None:
        self._results = results
        self._seeds: dict[tuple[str, str], list[Predictions]] = {}
        self._statistics: dict[tuple[str, str, bool], RowStatistics] = {}

    def seeds(self, label: str, backbone: str) -> list[Predictions]:
        """One per seed; none where they were not kept."""
        if (label, backbone) not in self._seeds:
            loaders = [r.predictions for r in self._results if (r.label, r.backbone) == (label, backbone)]
            loaded = [load() for load in loaders if load is not None]
            self._seeds[label, backbone] = [one for one in loaded if one is not None]
        return self._seeds[label, backbone]

    def statistics(self, label: str, backbone: str, half: bool) -> RowStatistics:
        """Of all rows, which all have a score."""
        place = (label, backbone, half)
        if place not in self._statistics:
            seeds = self.seeds(label, backbone)
            self._statistics[place] = RowStatistics.of([one.second_half if half else one for one in seeds])
        return self._statistics[place]


def _pair(judged: _Judged, subject: str, baseline: str, backbone: str, measures: Sequence[str]) -> list[MethodTest]:
    mine, theirs = judged.seeds(subject, backbone), judged.seeds(baseline, backbone)
    both = [*mine, *theirs]
    if not mine or not theirs or not all(np.array_equal(one.labels, mine[0].labels) for one in both):
        return []
    scored = reduce(np.logical_and, (one.scored for one in both))
    found = []
    for half in sorted({measure.startswith(HALF) for measure in measures}):
        rows = scored[len(scored) // 2 :] if half else scored
        if not rows.any():
            continue
        if rows.all():
            first, second = (judged.statistics(label, backbone, half) for label in (subject, baseline))
        else:
            first, second = (
                RowStatistics.of([(one.second_half if half else one)[rows] for one in side]) for side in (mine, theirs)
            )
        for measure in measures:
            test = compare_rows(first, second, measure.removeprefix(HALF)) if measure.startswith(HALF) == half else None
            if test is not None:
                place = (backbone, measure, subject, baseline, test.difference, test.low, test.high)
                found.append(MethodTest(*place, test.delong, test.bootstrap, test.p_value, int(rows.sum())))
    return found

from itertools import pairwise

import numpy as np
import pytest

from daes.experiments.predictions import Predictions
from daes.metrics.auc import exact_auc


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    labels = rng.random(101) < 0.4
    return Predictions((labels + rng.normal(size=101)).astype(np.float32), labels, rng.random(101).astype(np.float32))


def test_arrays_bring_them_back(rows):
    for one in (rows, Predictions(rows.logits, rows.labels)):
        arrays = one.to_arrays()
        assert arrays["labels"].nbytes == 13
        again = Predictions.from_arrays(arrays)
        assert np.array_equal(again.logits, one.logits)
        assert np.array_equal(again.labels, one.labels)
        assert (again.weights is None) == (one.weights is None)


def test_a_learning_curve_is_the_measure_of_each_part(rows):
    curve = rows.curve()
    assert len(curve["auc"]) == len(curve["logloss"]) == 8
    marks = [0, 13, 25, 38, 50, 63, 76, 88, 101]
    for place, (start, stop) in enumerate(pairwise(marks)):
        part = slice(start, stop)
        expected = exact_auc(rows.logits[part], rows.labels[part], rows.weights[part])
        assert curve["auc"][place] == pytest.approx(expected, nan_ok=True)


def test_rows_without_a_score_are_left_out_of_measures_but_keep_their_place(rows):
    logits = rows.logits.copy()
    logits[:30] = np.nan
    holed = Predictions(logits, rows.labels, rows.weights)
    assert holed.measure() == rows[30:].measure()
    assert len(holed.second_half) == 51
    assert np.isnan(holed.curve()["auc"][0])
    assert np.isnan(Predictions(np.full(3, np.nan, np.float32), np.ones(3, np.bool_)).measure()["auc"])
    assert np.array_equal(Predictions.concat([holed[:50], holed[50:]]).labels, rows.labels)

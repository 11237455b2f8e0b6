from functools import partial

import numpy as np
import pytest

from daes.experiments.method_tests import method_tests
from daes.experiments.predictions import Predictions
from daes.experiments.significance import holm
from daes.experiments.trial import TrialResult

LABELS = np.random.default_rng(0).random(2000) < 0.3


def result(label, seed, noise, labels=LABELS, hole=0, kept=True, backbone="fnn"):
    rng = np.random.default_rng([seed, round(100 * noise)])
    signal = np.random.default_rng(9).normal(size=labels.size) + labels
    logits = (signal + noise * rng.normal(size=labels.size)).astype(np.float32)
    logits[:hole] = np.nan
    load = partial(Predictions, logits, labels) if kept else lambda: None
    return TrialResult(label, label, backbone, seed, "stream", predictions=load)


def test_every_pair_is_tested_and_corrected_for_all():
    results = [
        result(label, seed, noise) for label, noise in (("daes", 0.1), ("efd", 1.5), ("ple", 0.11)) for seed in (0, 1)
    ]
    pairs = [("daes", "efd"), ("daes", "ple")]
    tests = method_tests(results, pairs, ["fnn", "lr"], ["auc", "half_auc", "half_logloss"])
    assert [(test.baseline, test.measure, test.rows) for test in tests] == [
        ("efd", "auc", 2000),
        ("efd", "half_auc", 1000),
        ("efd", "half_logloss", 1000),
        ("ple", "auc", 2000),
        ("ple", "half_auc", 1000),
        ("ple", "half_logloss", 1000),
    ]
    raw = [test.bootstrap if test.delong is None else max(test.delong, test.bootstrap) for test in tests]
    assert [test.p_value for test in tests] == pytest.approx(holm(raw).tolist())
    assert tests[0].better
    assert tests[0].significant
    assert not tests[3].significant
    aucs = {
        label: np.mean([r.predictions().measure()["auc"] for r in results if r.label == label])
        for label in ("daes", "efd")
    }
    assert tests[0].difference == pytest.approx(aucs["daes"] - aucs["efd"])


def test_rows_that_one_has_no_score_for_are_left_out_for_both():
    results = [result("daes", 0, 0.1), result("efd", 0, 1.0, hole=1200)]
    whole, half = method_tests(results, [("daes", "efd")], ["fnn"], ["auc", "half_auc"])
    assert (whole.rows, half.rows) == (800, 800)
    expected = [r.predictions()[1200:].measure()["auc"] for r in results]
    assert whole.difference == pytest.approx(expected[0] - expected[1])
    assert half.difference == pytest.approx(whole.difference)


def test_what_cannot_be_tested_is_left_out():
    others = [result("efd", 0, 1.0, kept=False), result("ple", 0, 1.0, labels=~LABELS), result("fe", 0, 1.0, hole=2000)]
    pairs = [("daes", other.label) for other in others]
    assert method_tests([result("daes", 0, 0.1), *others], pairs, ["fnn"], ["auc"]) == ()

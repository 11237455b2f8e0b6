"""Every metric against a slow formula, and the promises all of them make: weights, merging, exact resume."""

import ast
import copy
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

import daes.metrics
from daes.metrics import (
    AUC,
    BrierScore,
    Calibration,
    LogLoss,
    NormalizedEntropy,
    StreamMetrics,
    WindowAUC,
    exact_auc,
    logit,
)

METRICS = {
    "auc": AUC,
    "window": lambda: WindowAUC(700),
    "window not full": lambda: WindowAUC(5000),
    "logloss": LogLoss,
    "normalized_entropy": NormalizedEntropy,
    "brier": BrierScore,
    "calibration": Calibration,
}


@pytest.fixture(params=METRICS.values(), ids=METRICS.keys())
def make(request):
    return request.param


def some_rows(seed, size=1000):
    rng = np.random.default_rng(seed)
    logits = rng.normal(-2, 1.5, size)
    labels = (rng.random(size) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return logits, labels, rng.exponential(size=size)


def same_state(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        if isinstance(value, dict):
            same_state(value, second[name])
        elif isinstance(value, np.ndarray):
            assert value.dtype == second[name].dtype
            assert value.tobytes() == second[name].tobytes()
        else:
            assert value == second[name]


def slow_logloss(logits, labels, weights):
    total = 0.0
    for z, y, w in zip(logits, labels, weights, strict=True):
        p = 1 / (1 + math.exp(-z))
        total -= w * math.log(p if y == 1 else 1 - p)
    return total / sum(weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_logloss_and_brier_equal_the_formulas(weighted):
    logits, labels, weights = some_rows(0)
    weights = weights if weighted else np.ones(logits.size)
    loss, brier = LogLoss(), BrierScore()
    for part in np.array_split(np.arange(logits.size), 7):
        loss.update(logits[part], labels[part], weights[part] if weighted else None)
        brier.update(logits[part], labels[part], weights[part] if weighted else None)
    predictions = 1 / (1 + np.exp(-logits))
    assert loss.compute() == pytest.approx(slow_logloss(logits, labels, weights), rel=1e-12)
    assert loss.compute() == pytest.approx(log_loss(labels, predictions, sample_weight=weights), rel=1e-9)
    assert brier.compute() == pytest.approx(brier_score_loss(labels, predictions, sample_weight=weights), rel=1e-12)


def test_logloss_is_stable_where_the_probability_has_no_digits_left():
    metric = LogLoss()
    metric.update([800.0, -800.0, 40.0, -40.0], [0, 1, 1, 0])
    assert metric.compute() == pytest.approx((800 + 800 + 2 * math.exp(-40)) / 4, rel=1e-15)
    tiny = LogLoss()
    tiny.update([40.0], [1])
    assert tiny.compute() == pytest.approx(math.exp(-40), rel=1e-12, abs=0)


def test_certainty_is_free_when_right_and_infinite_when_wrong():
    right, wrong = LogLoss(), LogLoss()
    right.update([np.inf, -np.inf], [1, 0])
    wrong.update([np.inf, 0.0], [0, 1])
    assert right.compute() == 0.0
    assert wrong.compute() == np.inf
    silent = LogLoss()
    silent.update([np.inf, 0.0], [0, 1], [0.0, 1.0])
    assert silent.compute() == pytest.approx(math.log(2))


def test_normalized_entropy_is_logloss_over_that_of_the_mean_label():
    logits, labels, weights = some_rows(1)
    metric = NormalizedEntropy()
    metric.update(logits, labels, weights)
    rate = float(np.average(labels, weights=weights))
    entropy = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    assert metric.compute() == pytest.approx(slow_logloss(logits, labels, weights) / entropy, rel=1e-12)


def test_normalized_entropy_of_one_class_is_undefined_whatever_the_weights():
    metric = NormalizedEntropy()
    for seed in range(5):
        logits, _, weights = some_rows(seed)
        metric.update(logits, np.ones(logits.size), weights)
    assert math.isnan(metric.compute())
    assert metric.undefined == "labels of one class only in 5000 rows: no non-click"


def test_calibration_is_mean_prediction_over_mean_label():
    logits, labels, weights = some_rows(2)
    metric = Calibration()
    metric.update(logits, labels, weights)
    predictions = 1 / (1 + np.exp(-logits))
    assert metric.compute() == pytest.approx(np.sum(weights * predictions) / np.sum(weights * labels), rel=1e-12)


def slow_ece(predictions, labels, weights, upper_edges):
    error = 0.0
    lower = -1.0
    for upper in upper_edges:
        inside = [i for i, p in enumerate(predictions) if lower <= p < upper]
        lower = upper
        if inside:
            weight = sum(weights[i] for i in inside)
            predicted = sum(weights[i] * predictions[i] for i in inside) / weight
            clicked = sum(weights[i] * labels[i] for i in inside) / weight
            error += weight * abs(predicted - clicked)
    return error / sum(weights)


def test_ece_and_reliability():
    logits, labels, weights = some_rows(4)
    metric = Calibration()
    metric.update(logits, labels, weights)
    predictions = 1 / (1 + np.exp(-logits))
    edges = [*(1 / (1 + np.exp(-np.arange(-7.5, 8.0, 0.5)))), 2.0]
    assert metric.ece() == pytest.approx(slow_ece(predictions, labels, weights, edges), rel=1e-9)
    table = metric.reliability()
    assert table.lower[0] == 0.0
    assert table.upper[-1] == 1.0
    seen = table.weight > 0
    assert (table.lower[seen] <= table.mean_prediction[seen]).all()
    assert (table.mean_prediction[seen] <= table.upper[seen]).all()
    assert np.isnan(table.mean_label[~seen]).all()
    inside = (predictions >= table.lower[16]) & (predictions < table.upper[16])
    assert table.weight[16] == pytest.approx(weights[inside].sum())
    assert table.mean_prediction[16] == pytest.approx(np.average(predictions[inside], weights=weights[inside]))
    assert table.mean_label[16] == pytest.approx(np.average(labels[inside], weights=weights[inside]))


def test_a_certain_prediction_has_a_reliability_bin():
    metric = Calibration(bins=10)
    metric.update([np.inf, -np.inf], [1, 0])
    assert metric.reliability().weight[[0, -1]].tolist() == [1.0, 1.0]
    assert metric.ece() == 0.0


def test_weights_of_whole_numbers_repeat_the_row(make):
    logits, labels, _ = some_rows(5, 200)
    times = np.random.default_rng(5).integers(0, 4, logits.size)
    weighted, repeated = make(), make()
    weighted.update(logits, labels, times)
    repeated.update(np.repeat(logits, times), np.repeat(labels, times))
    assert weighted.compute() == pytest.approx(repeated.compute(), rel=1e-12)


def test_merge_stands_for_all_rows(make):
    whole = make()
    parts = [make() for _ in range(3)]
    for seed, part in enumerate(parts):
        logits, labels, weights = some_rows(seed, 230)
        part.update(logits, labels, weights)
        whole.update(logits, labels, weights)
    before = copy.deepcopy(parts[2])
    left = copy.deepcopy(parts[0])
    left.merge(parts[1])
    left.merge(parts[2])
    right = parts[1]
    right.merge(parts[2])
    right.merge(parts[0])
    assert left.count == right.count == whole.count == 690
    assert left.compute() == pytest.approx(whole.compute(), rel=1e-12)
    assert right.compute() == pytest.approx(whole.compute(), rel=1e-12)
    same_state(parts[2].state_dict(), before.state_dict())


def test_resumes_bit_for_bit(make):
    straight, first, second = make(), make(), make()
    for seed in range(6):
        rows = some_rows(seed, 333)
        straight.update(*rows)
        (first if seed < 3 else second).update(*rows)
        if seed == 2:
            state = first.state_dict()
            first.update(*rows)  # must not reach the state
            second.load_state_dict(state)
    same_state(second.state_dict(), straight.state_dict())
    assert second.compute() == straight.compute()


def test_state_holds_arrays_and_plain_values_only(make):
    metric = make()
    metric.update(*some_rows(0))
    assert {type(value) for value in metric.state_dict().values()} <= {np.ndarray, int, float, str}


def test_empty_batches_change_nothing(make):
    metric = make()
    metric.update([], [])
    assert math.isnan(metric.compute())
    assert metric.undefined
    metric.update(*some_rows(0))
    state = metric.state_dict()
    metric.update([], [], [])
    same_state(metric.state_dict(), state)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.0, np.nan, 1.0, np.nan], [0, 1, 0, 1]), ValueError, "logits must not be NaN, got 2 of 4 .* row 1"),
        (([0.0, 1.0], [0, 2]), ValueError, "labels must be 0 or 1, got 1 of 2 .* 2.0 in row 1"),
        (([0.0, 1.0], [0, np.nan]), ValueError, "labels must be 0 or 1"),
        (([0.0], [0, 1]), ValueError, "labels must have one value per logit, got 2 for 1 logits"),
        (([0.0], [0], [1, 2]), ValueError, "weights must have one value per logit, got 2"),
        (([0.0], [0], [-1.0]), ValueError, "weights must be finite and not negative"),
        (([0.0], [0], [np.inf]), ValueError, "weights must be finite and not negative"),
        (([[0.0]], [0]), ValueError, r"logits must be one-dimensional, got shape \(1, 1\)"),
        ((["a"], [0]), TypeError, "logits must be numeric"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(make, arguments, error, message):
    metric = make()
    metric.update(*some_rows(0))
    state = metric.state_dict()
    with pytest.raises(error, match=message):
        metric.update(*arguments)
    same_state(metric.state_dict(), state)


def test_merge_refuses_what_does_not_fit(make):
    metric = make()
    with pytest.raises(ValueError, match=r"got this .* itself"):
        metric.merge(metric)
    with pytest.raises(TypeError, match="to merge, got StreamMetrics"):
        metric.merge(StreamMetrics())


def test_merge_refuses_other_settings():
    with pytest.raises(ValueError, match="other must have bins=4 to merge, got 8"):
        AUC(bins=4).merge(AUC(bins=8))


def test_load_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="state must have bins=4, got 8"):
        AUC(bins=4).load_state_dict(AUC(bins=8).state_dict())
    with pytest.raises(ValueError, match="state must have kind='LogLoss', got 'BrierScore'"):
        LogLoss().load_state_dict(BrierScore().state_dict())
    with pytest.raises(ValueError, match="of another version: totals missing"):
        LogLoss().load_state_dict({"kind": "LogLoss", "count": 0})
    with pytest.raises(ValueError, match="totals of shape"):
        LogLoss().load_state_dict({"kind": "LogLoss", "count": 0, "totals": np.zeros(3)})
    broken = WindowAUC(4).state_dict()
    with pytest.raises(ValueError, match="window of shape"):
        WindowAUC(4).load_state_dict({**broken, "window": np.zeros((3, 5))})


def test_logit_inverts_the_sigmoid_and_refuses_what_is_no_probability():
    p = np.array([1e-300, 1e-9, 0.3, 0.5, 1 - 1e-9])
    np.testing.assert_allclose(1 / (1 + np.exp(-logit(p))), p, rtol=1e-12)
    for bad in (1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match=r"probabilities must lie in \[0, 1\], got 1 of 2"):
            logit([0.5, bad])


class TestStreamMetrics:
    def test_life_and_window_agree_while_all_rows_fit(self):
        metrics = StreamMetrics(window=1000)
        logits, labels, weights = some_rows(0)
        metrics.update(logits, labels, weights)
        values = metrics.compute()
        assert values["rows"] == 1000
        for name in ("logloss", "normalized_entropy", "brier", "calibration", "ece"):
            assert values[f"window_{name}"] == pytest.approx(values[name], rel=1e-12)
        assert values["window_auc"] == pytest.approx(exact_auc(logits, labels, weights), rel=1e-12)
        assert abs(values["auc"] - values["window_auc"]) < 1e-4

    def test_the_window_forgets_and_the_life_does_not(self):
        metrics = StreamMetrics(window=500)
        everything = [np.concatenate(columns) for columns in zip(some_rows(1), some_rows(2), strict=True)]
        for part in np.array_split(np.arange(2000), 9):
            metrics.update(*(column[part] for column in everything))
        values = metrics.compute()
        recent, whole = StreamMetrics(window=None), StreamMetrics(window=None)
        recent.update(*(column[-500:] for column in everything))
        whole.update(*everything)
        for name in ("logloss", "normalized_entropy", "brier", "calibration", "ece"):
            assert values[f"window_{name}"] == pytest.approx(recent.compute()[name], rel=1e-12)
            assert values[name] == pytest.approx(whole.compute()[name], rel=1e-12)
        assert values["window_auc"] == pytest.approx(exact_auc(*(column[-500:] for column in everything)), rel=1e-12)
        assert values["auc"] == whole.compute()["auc"]

    def test_names(self):
        life = ["auc", "logloss", "normalized_entropy", "brier", "calibration", "ece"]
        assert list(StreamMetrics(window=None).compute()) == ["rows", *life]
        assert list(StreamMetrics(window=5).compute()) == ["rows", *life, *(f"window_{name}" for name in life)]

    def test_what_is_nan_has_a_reason_and_nothing_else_has(self):
        metrics = StreamMetrics(window=10)
        for rows in ([], []), ([0.0, 1.0], [0, 0]), ([0.0], [1]), ([0.0] * 10, [1] * 10):
            metrics.update(*rows)
            undefined = {name for name, value in metrics.compute().items() if math.isnan(value)}
            assert undefined == metrics.undefined().keys()
        assert metrics.undefined()["window_auc"] == "labels of one class only in 10 rows: no non-click"

    def test_merge_and_resume(self):
        halves = [StreamMetrics(window=300), StreamMetrics(window=300)]
        for seed, half in enumerate(halves):
            half.update(*some_rows(seed))
        restored = StreamMetrics(window=300)
        restored.load_state_dict(halves[0].state_dict())
        assert restored.compute() == halves[0].compute()
        halves[0].update(*some_rows(7))
        restored.update(*some_rows(7))
        same_state(restored.state_dict(), halves[0].state_dict())
        restored.merge(halves[1])
        both = StreamMetrics(window=None)
        for seed in (0, 7, 1):
            both.update(*some_rows(seed))
        for name, value in both.compute().items():
            assert restored.compute()[name] == pytest.approx(value, rel=1e-12)
        tails = [
            np.concatenate([rows[-300:] for rows in pair]) for pair in zip(some_rows(7), some_rows(1), strict=True)
        ]
        assert restored.compute()["window_auc"] == pytest.approx(exact_auc(*tails), rel=1e-12)

    def test_a_bad_row_reaches_no_member(self):
        metrics = StreamMetrics(window=10)
        state = metrics.state_dict()
        with pytest.raises(ValueError, match="logits must not be NaN, got 1 of 1"):
            metrics.update([np.nan], [1])
        same_state(metrics.state_dict(), state)

    def test_refusals(self):
        with pytest.raises(ValueError, match="must have a window exactly if this one has"):
            StreamMetrics(window=None).merge(StreamMetrics())
        with pytest.raises(
            ValueError, match=r"state must have the entries auc, .*, calibration, got auc, .*, calibration, window"
        ):
            StreamMetrics(window=None).load_state_dict(StreamMetrics().state_dict())
        with pytest.raises(ValueError, match="state must have size=6, got 5"):
            StreamMetrics(window=6).load_state_dict(StreamMetrics(window=5).state_dict())
        with pytest.raises(ValueError, match="size must be a positive integer"):
            StreamMetrics(window=0)


@pytest.mark.parametrize("path", sorted(Path(daes.metrics.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_matrix_product_wakes_threads_of_blas(path):
    assert not [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.MatMult)]

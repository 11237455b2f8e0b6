"""AUC: exact against counting every pair and scikit-learn, streaming within its own bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from daes.metrics import AUC, WindowAUC, exact_auc, logit
from daes.metrics.base import check_rows


def count_pairs(scores, labels, weights=None):
    weights = [1.0] * len(scores) if weights is None else weights
    won = total = 0.0
    for s, y, w in zip(scores, labels, weights, strict=True):
        for t, z, v in zip(scores, labels, weights, strict=True):
            if y == 1 and z == 0:
                total += w * v
                won += w * v * (1.0 if s > t else 0.5 if s == t else 0.0)
    return won / total if total else float("nan")


def click_rows(rng, size, rate=0.03, spread=1.0):
    """Rows as of a click log: few clicks, logits far below 0, predictions that are right."""
    logits = rng.normal(np.log(rate / (1 - rate)), spread, size)
    return logits, (rng.random(size) < 1 / (1 + np.exp(-logits))).astype(np.float32)


rows = st.lists(
    st.tuples(
        st.one_of(st.integers(-2, 2).map(float), st.floats(allow_nan=False)),
        st.integers(0, 1),
        st.sampled_from([0.0, 0.25, 1.0, 3.0]),
    ),
    max_size=30,
)


@given(rows)
def test_exact_auc_counts_every_pair(rows):
    scores, labels, weights = ([row[i] for row in rows] for i in range(3))
    np.testing.assert_allclose(exact_auc(scores, labels), count_pairs(scores, labels), rtol=1e-12)
    np.testing.assert_allclose(exact_auc(scores, labels, weights), count_pairs(scores, labels, weights), rtol=1e-12)


@pytest.mark.parametrize("decimals", [0, 2, 15])
def test_exact_auc_equals_sklearn(decimals):
    rng = np.random.default_rng(decimals)
    logits, labels = click_rows(rng, 5000)
    scores, weights = logits.round(decimals), rng.exponential(size=5000)
    np.testing.assert_allclose(exact_auc(scores, labels), roc_auc_score(labels, scores), rtol=1e-12)
    weighted = roc_auc_score(labels, scores, sample_weight=weights)
    np.testing.assert_allclose(exact_auc(scores, labels, weights), weighted, rtol=1e-12)


def test_exact_auc_of_float32_keeps_its_ties():
    scores = np.array([0.1, 0.1, 0.2], dtype=np.float32)
    assert exact_auc(scores, np.array([0, 1, 1], dtype=np.uint8)) == 0.75


def test_exact_auc_orders_infinities():
    assert exact_auc([-np.inf, 0.0, np.inf, np.inf], [0, 0, 0, 1]) == pytest.approx(2.5 / 3)


@given(rows, st.integers(1, 40), st.sampled_from([1.0, 5.0, 32.0]))
def test_bounds_hold_the_exact_auc(rows, bins, scale):
    scores, labels, weights = ([row[i] for row in rows] for i in range(3))
    with np.errstate(over="ignore"):
        scores = np.multiply(scores, scale)
    metric = AUC(bins=bins)
    metric.update(scores, labels, weights)
    exact = count_pairs(scores, labels, weights)
    lower, upper = metric.bounds()
    if np.isnan(exact):
        assert np.isnan([lower, upper, metric.compute()]).all()
        assert metric.undefined
    else:
        assert lower - 1e-12 <= exact <= upper + 1e-12
        assert metric.compute() == pytest.approx((lower + upper) / 2)
        assert not metric.undefined


@pytest.mark.parametrize("rate", [1e-3, 0.03, 0.5])
def test_stream_auc_is_as_close_as_it_says(rate):
    rng = np.random.default_rng(7)
    metric = AUC()
    logits, labels = click_rows(rng, 400_000, rate)
    for part in np.array_split(np.arange(logits.size), 50):
        metric.update(logits[part], labels[part])
    lower, upper = metric.bounds()
    # h/2·∫fg is largest for equal densities, 1/(2√π) for a standard normal; the sample adds its own noise.
    assert (upper - lower) / 2 < 1.1 * (1 / 4096) / 2 / (2 * np.sqrt(np.pi))
    assert abs(metric.compute() - exact_auc(logits, labels)) < 2e-6


def test_pairs_in_one_bin_count_one_half():
    metric = AUC(bins=4)
    metric.update([0.1, 0.9], [1, 0])
    assert metric.compute() == 0.5
    assert metric.bounds() == (0.0, 1.0)


def test_scores_beyond_the_limit_stay_in_order_with_those_within():
    metric = AUC(bins=8)
    metric.update([-50.0, 0.0, np.inf, -np.inf], [0, 1, 1, 0])
    assert metric.bounds() == (1.0, 1.0)


@pytest.mark.parametrize("metric", [AUC(), WindowAUC(100)])
def test_one_class_is_undefined_and_says_so(metric):
    metric.update([0.5, 1.0], [1, 1])
    assert np.isnan(metric.compute())
    assert metric.undefined == "labels of one class only in 2 rows: no non-click"
    metric.update([0.0, 0.0], [0, 0])
    assert metric.compute() == 1.0
    assert metric.undefined is None


@settings(max_examples=50)
@given(rows, st.integers(1, 35), st.lists(st.integers(0, 12), max_size=6))
def test_window_auc_is_that_of_the_last_rows(rows, size, cuts):
    metric = WindowAUC(size)
    start = 0
    for width in [*cuts, len(rows)]:
        part = rows[start : start + width]
        metric.update([row[0] for row in part], [row[1] for row in part], [row[2] for row in part])
        start += width
        seen = rows[: min(start, len(rows))]
        last = seen[-size:]
        assert metric.rows().logits.tolist() == [row[0] for row in last]
        expected = count_pairs(*([row[i] for row in last] for i in range(3)))
        np.testing.assert_allclose(metric.compute(), expected, rtol=1e-12)
        assert metric.count == len(seen)


@pytest.mark.parametrize("spare", [7, 1 << 20])
@pytest.mark.parametrize("width", [1, 13, 64, 997, 3000])
def test_a_window_keeps_what_rows_were_bit_for_bit(monkeypatch, width, spare):
    monkeypatch.setattr("daes.metrics.auc._SPARE", spare)
    logits, labels = click_rows(np.random.default_rng(width), 5000, rate=0.3, spread=4.0)
    metric = WindowAUC(1000)
    for start in range(0, 5000, width):
        metric.update(logits[start : start + width], labels[start : start + width])
        last = slice(max(min(start + width, 5000) - 1000, 0), start + width)
        kept, anew = metric.rows(), check_rows(logits[last], labels[last])
        for name in ("logits", "labels", "weights", "predictions", "losses"):
            assert getattr(kept, name).tobytes() == getattr(anew, name).tobytes()


def test_merged_windows_hold_the_last_rows_of_each():
    rng = np.random.default_rng(0)
    logits, labels = click_rows(rng, 900, rate=0.3)
    parts = [slice(0, 300), slice(300, 420), slice(420, 900)]
    windows = [WindowAUC(200) for _ in parts]
    for window, part in zip(windows, parts, strict=True):
        window.update(logits[part], labels[part])
    last = np.r_[100:300, 300:420, 700:900]
    windows[0].merge(windows[1])
    windows[0].merge(windows[2])
    assert windows[0].size == 600
    assert windows[0].count == 900
    np.testing.assert_allclose(windows[0].compute(), exact_auc(logits[last], labels[last]), rtol=1e-12)


def test_a_merged_window_lets_go_of_the_oldest_of_both_first():
    one, two = WindowAUC(3), WindowAUC(2)
    one.update([1.0, 2.0, 3.0], [0, 0, 0])
    two.update([11.0, 12.0], [1, 1])
    one.merge(two)
    assert one.rows().logits.tolist() == [1.0, 2.0, 11.0, 3.0, 12.0]
    one.update([4.0, 5.0], [0, 1])
    assert one.rows().logits.tolist() == [11.0, 3.0, 12.0, 4.0, 5.0]
    assert one.rows().labels.tolist() == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AUC(bins=0), "bins must be a positive integer, got 0"),
        (lambda: WindowAUC(0), "size must be a positive integer, got 0"),
        (lambda: exact_auc([0.1, np.nan, np.nan], [0, 1, 1]), "logits must not be NaN, got 2 of 3"),
        (lambda: exact_auc(logit([0.5]), [0.5]), "labels must be 0 or 1, got 1 of 1"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()

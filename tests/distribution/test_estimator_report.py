import json
from math import ceil

import numpy as np
import pytest

from daes.distribution import ESTIMATORS, GKSketch, JumpReservoir, OrderStatistics, Reservoir, kl_divergence
from daes.distribution.estimator_report import LABELS, PERCENTILES, compare_estimators, rank_errors


def stream(length: int = 30_000, batch: int = 1000, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.lognormal(size=length)
    values[rng.random(length) < 0.3] = 0.0
    values[rng.random(length) < 0.05] = np.nan
    values[7] = np.inf
    return np.split(values, range(batch, length, batch))


def finite(batches: list[np.ndarray]) -> np.ndarray:
    values = np.concatenate(batches)
    return values[np.isfinite(values)]


def slow_rank_error(values: list[float], level: float, estimate: float) -> float:
    below = sum(value < estimate for value in values) / len(values)
    upto = sum(value <= estimate for value in values) / len(values)
    if below <= level <= upto:
        return 0.0
    return below - level if level < below else upto - level


def test_rank_errors_are_the_distance_to_the_ranks_a_value_takes_up():
    rng = np.random.default_rng(0)
    values = np.sort(rng.integers(0, 6, size=40).astype(float))  # many ties
    levels = rng.random(200)
    estimates = np.concatenate([rng.integers(-1, 8, size=100), rng.uniform(-1, 7, size=100)])
    expected = [
        slow_rank_error(values.tolist(), level, estimate)
        for level, estimate in zip(levels.tolist(), estimates.tolist(), strict=True)
    ]
    np.testing.assert_allclose(rank_errors(values, levels, estimates), expected, atol=1e-12)


def test_true_quantiles_have_no_error():
    report = compare_estimators(stream(), size=100_000, estimators=["jump"])
    (result,) = report.results  # a reservoir that holds the whole stream
    assert result.quantiles == report.true_quantiles
    assert result.max_rank_error == result.mean_rank_error == result.kl_divergence == 0.0
    ordered = sorted(finite(stream()).tolist())
    by_definition = [ordered[max(ceil(round(level * len(ordered), 6)), 1) - 1] for level in PERCENTILES]
    assert list(report.true_quantiles) == by_definition


def test_counts_what_it_reads():
    batches = [*stream(), np.array([]), np.array([np.nan, -np.inf])]
    read: list[int] = []
    report = compare_estimators(iter(batches), size=100, estimators=["jump"], progress=read.append)
    values = np.concatenate(batches)
    assert report.count == np.isfinite(values).sum()
    assert report.skipped == values.size - report.count
    assert (report.minimum, report.maximum) == (finite(batches).min(), finite(batches).max())
    assert report.batches == len(batches)
    assert read == [batch.size for batch in batches]


def test_every_estimator_is_asked_by_default():
    report = compare_estimators(stream(), size=2000)
    assert [result.name for result in report.results] == list(ESTIMATORS)
    assert [result.label for result in report.results] == [LABELS[name] for name in ESTIMATORS]
    for result in report.results:
        assert 0 < result.max_rank_error < 0.1, result.name
        assert result.seconds > 0
        assert result.values_per_second == pytest.approx(30_000 / result.seconds)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("reservoir", lambda: Reservoir(2000, seed=5)),
        ("jump", lambda: JumpReservoir(2000, seed=5)),
        ("jump-paper", lambda: JumpReservoir(2000, skip="paper", seed=5)),
        ("order-statistics", OrderStatistics),
        ("gk", GKSketch),
    ],
)
def test_an_estimator_in_company_is_what_it_is_alone(name, make):
    batches, alone = stream(), make()
    (result,) = compare_estimators(batches, size=2000, seed=5, estimators=[name]).results
    for batch in batches:
        alone.update(batch)
    truth = finite(batches)
    assert result.quantiles == tuple(alone.quantile(PERCENTILES).tolist())
    assert result.kl_divergence == pytest.approx(kl_divergence(truth, alone))
    assert result.draws == getattr(alone, "draws", None)
    assert result.nbytes == alone.nbytes
    errors = [
        slow_rank_error(truth.tolist(), level, estimate)
        for level, estimate in zip(PERCENTILES, result.quantiles, strict=True)
    ]
    np.testing.assert_allclose(result.rank_errors, errors, atol=1e-12)
    assert result.max_rank_error == pytest.approx(max(map(abs, errors)))
    assert result.mean_rank_error == pytest.approx(sum(map(abs, errors)) / len(errors))


def test_order_statistics_err_under_drift_and_reservoirs_do_not():
    rng = np.random.default_rng(0)
    batches = [step + rng.random(1000) for step in range(50)]  # from U[0, 1] to U[49, 50]
    jump, means = compare_estimators(batches, size=10_000, estimators=["jump", "order-statistics"]).results
    # Every quantile of the means lies within one of the middle: at the 1 % level half the stream is below it.
    assert means.max_rank_error > 0.45
    assert jump.max_rank_error < 0.02


def test_order_statistics_know_the_levels_beforehand():
    batches = [np.arange(1000.0)] * 3
    (result,) = compare_estimators(batches, levels=[0.0005, 0.9995], estimators=["order-statistics"]).results
    assert result.quantiles == (0.0, 999.0)


def test_levels_are_put_in_order():
    report = compare_estimators(stream(), size=100, levels=[0.9, 0.1, 0.9], estimators=["jump"])
    assert report.levels == (0.1, 0.9)
    assert len(report.results[0].quantiles) == len(report.true_quantiles) == 2


def test_a_long_stream_is_held_against_a_sample_of_itself():
    batches = stream()
    report = compare_estimators(batches, size=500, keep=5000, estimators=["jump"])
    assert report.kept == 5000
    assert not report.truth_is_exact
    ordered = np.sort(finite(batches))
    errors = rank_errors(ordered, np.array(PERCENTILES), np.array(report.true_quantiles))
    assert 0 < np.abs(errors).max() < 1.63 / np.sqrt(5000)  # Kolmogorov's 99 %
    assert report.results[0].max_rank_error > np.abs(errors).max()
    assert compare_estimators(batches, size=500, estimators=["jump"]).truth_is_exact


def test_one_seed_gives_one_result():
    first, second, other = (
        compare_estimators(stream(), size=500, estimators=["reservoir", "jump"], seed=seed) for seed in (3, 3, 4)
    )
    for mine, same, different in zip(first.results, second.results, other.results, strict=True):
        assert mine.quantiles == same.quantiles
        assert mine.quantiles != different.quantiles


def test_batches_may_be_read_only_and_stay_as_they_are():
    batches = stream()
    copies = [batch.copy() for batch in batches]
    for batch in batches:
        batch.setflags(write=False)
    compare_estimators(batches, size=500)
    for batch, copy in zip(batches, copies, strict=True):
        np.testing.assert_array_equal(batch, copy)


def test_json_says_everything():
    report = compare_estimators(stream(), size=500, levels=[0.1, 0.5], estimators=["jump", "gk"])
    read = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert read["levels"] == [0.1, 0.5]
    assert read["count"] == report.count
    assert read["truth_is_exact"] is True
    jump, gk = read["results"]
    assert jump["quantiles"] == list(report.results[0].quantiles)
    assert jump["draws"] == report.results[0].draws
    assert gk["draws"] is None
    assert {"max_rank_error", "mean_rank_error", "kl_divergence", "seconds", "values_per_second", "nbytes"} <= gk.keys()


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "batches must have at least one finite value, got none"),
        ([np.array([])], "got none"),
        ([np.array([np.nan, np.inf])], "got 2 values that are NaN or ±inf"),
    ],
)
def test_no_values_is_an_error(batches, message):
    with pytest.raises(ValueError, match=message):
        compare_estimators(batches, size=10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be a positive integer, got 0"),
        ({"keep": -1}, "keep must be a positive integer, got -1"),
        ({"seed": -1}, "seed must be a non-negative integer, got -1"),
        ({"levels": [0.5, 1.5]}, r"levels must lie in \[0, 1\], got 1.5"),
        ({"levels": []}, "levels must have at least one level"),
        (
            {"estimators": ["jmup"]},
            r"estimators must be among reservoir, jump, .*, got 'jmup' \(did you mean 'jump'\?\)",
        ),
        ({"estimators": []}, "estimators must name at least one, got none"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare_estimators(stream(), **arguments)


def test_text_is_not_a_stream():
    with pytest.raises(TypeError, match="values must be numeric"):
        compare_estimators([np.array(["a", "b"])], size=10)


@pytest.mark.parametrize("extremes", [[1e308], [-1e308], [1e308, -1e308]])
@pytest.mark.filterwarnings("error")
def test_one_huge_value_is_only_a_value(extremes):
    values = np.random.default_rng(0).permutation(np.concatenate([np.arange(2000.0), extremes]))
    for result in compare_estimators(np.array_split(values, 7), size=500, levels=[0.0, 0.1, 0.5, 0.9, 1.0]).results:
        assert np.isfinite(result.quantiles).all(), result.name
        assert np.isfinite(result.kl_divergence), result.name

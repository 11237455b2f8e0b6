import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import log_loss, roc_auc_score

from daes.experiments import row_tests
from daes.experiments.predictions import Predictions
from daes.experiments.row_tests import RowStatistics, compare_rows, delong_test


def made_up(rng, rows=600, seeds=1, noise=1.0, labels=None, ties=False, weighted=False):
    """Predictions of one model; `noise` sets how good it is, `ties` rounds its scores."""
    labels = rng.random(rows) < 0.3 if labels is None else labels
    signal = labels + rng.normal(size=rows)
    weights = rng.uniform(0.5, 3.0, rows).astype(np.float32) if weighted else None
    scores = [signal + noise * rng.normal(size=rows) for _ in range(seeds)]
    return [Predictions((one.round(1) if ties else one).astype(np.float32), labels, weights) for one in scores]


def pair(seed, **options):
    rng = np.random.default_rng(seed)
    first = made_up(rng, **options)
    second = [
        Predictions((one.logits + rng.normal(size=len(one)) * 0.7).astype(np.float32), one.labels, one.weights)
        for one in first
    ]
    return first, second


def auc(statistics):
    return statistics.wins.sum() / (statistics.clicks.sum() * statistics.others.sum())


def auc_by_pairs(logits, labels, weights):
    """The definition: over all pairs."""
    clicks, others = logits[labels][:, None], logits[~labels][None]
    wins = (clicks > others) + 0.5 * (clicks == others)
    pairs = weights[labels][:, None] * weights[~labels][None]
    return (wins * pairs).sum() / pairs.sum()


def delong_by_definition(first, second):
    """DeLong, DeLong and Clarke-Pearson (1988): structural components by O(mn) comparisons, sample covariances."""

    def components(one):
        clicks, others = one.logits[one.labels][:, None], one.logits[~one.labels][None]
        wins = (clicks > others) + 0.5 * (clicks == others)
        return wins.mean(1), wins.mean(0)

    by_clicks, by_others = (
        np.array([np.mean([components(one)[side] for one in model], axis=0) for model in (first, second)])
        for side in (0, 1)
    )
    covariance = np.cov(by_clicks) / by_clicks.shape[1] + np.cov(by_others) / by_others.shape[1]
    difference = by_clicks[0].mean() - by_clicks[1].mean()
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    return difference, 2 * norm.sf(abs(difference) / np.sqrt(variance))


@pytest.mark.parametrize("options", [{}, {"ties": True}, {"seeds": 3}, {"rows": 40, "ties": True}])
def test_delong_is_the_test_of_the_definition(options):
    first, second = pair(3, **options)
    expected, p_value = delong_by_definition(first, second)
    sides = RowStatistics.of(first), RowStatistics.of(second)
    assert auc(sides[0]) - auc(sides[1]) == pytest.approx(expected, rel=1e-9)
    assert delong_test(*sides) == pytest.approx(p_value, rel=1e-9)


def test_delong_agrees_with_a_bootstrap_of_single_rows():
    (first,), (second,) = pair(5, rows=1500)
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(400):
        rows = rng.integers(0, 1500, 1500)
        gaps.append(
            roc_auc_score(first.labels[rows], first.logits[rows])
            - roc_auc_score(first.labels[rows], second.logits[rows])
        )
    sides = RowStatistics.of([first]), RowStatistics.of([second])
    z = abs(norm.ppf(delong_test(*sides) / 2))
    assert (auc(sides[0]) - auc(sides[1])) / np.std(gaps) == pytest.approx(z, rel=0.1)


def test_delong_says_chance_is_chance_as_rarely_as_promised():
    rejected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        labels = rng.random(300) < 0.4
        signal = labels + rng.normal(size=300)
        sides = [
            RowStatistics.of([Predictions((signal + rng.normal(size=300)).astype(np.float32), labels)], blocks=2)
            for _ in range(2)
        ]
        rejected += delong_test(*sides) < 0.05
    assert 4 <= rejected <= 30  # 15 expected


@pytest.mark.parametrize("share", [0.3, 0.8])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_are_those_of_all_pairs_block_by_block(share, weighted):
    rng = np.random.default_rng(1)
    (one,) = made_up(rng, 200, labels=rng.random(200) < share, ties=True, weighted=weighted)
    found = RowStatistics.of([one], blocks=5)
    weights = np.ones(200) if one.weights is None else one.weights.astype(np.float64)
    assert auc(found) == pytest.approx(auc_by_pairs(one.logits, one.labels, weights), rel=1e-12)
    chances = 1 / (1 + np.exp(-one.logits.astype(np.float64)))
    assert found.losses.sum() / weights.sum() == pytest.approx(
        log_loss(one.labels, chances, sample_weight=weights), rel=1e-9
    )
    for b in range(5):
        for c in range(5):
            mine, theirs = slice(40 * b, 40 * b + 40), slice(40 * c, 40 * c + 40)
            clicks, others = one.logits[mine][one.labels[mine]], one.logits[theirs][~one.labels[theirs]]
            wins = (clicks[:, None] > others) + 0.5 * (clicks[:, None] == others)
            pairs = weights[mine][one.labels[mine]][:, None] * weights[theirs][~one.labels[theirs]]
            assert found.wins[b, c] == pytest.approx((wins * pairs).sum(), rel=1e-9, abs=1e-9)


def test_a_replicate_of_the_bootstrap_is_the_measure_of_the_rows_it_draws():
    first, second = pair(2, rows=320, seeds=2)
    sides = RowStatistics.of(first), RowStatistics.of(second)
    draws = row_tests._draws(64)
    gaps = {"auc": [], "logloss": []}
    for draw in draws:
        rows = np.repeat(np.arange(320), np.repeat(draw, 5).astype(int))
        labels = first[0].labels[rows]
        weight = labels.sum() * (~labels).sum()
        gap = draw @ (sides[0].wins - sides[1].wins) @ draw / weight
        gaps["auc"].append(gap)
        gaps["logloss"].append(draw @ (sides[0].losses - sides[1].losses) / 320)
    for draw, gap in zip(draws[:20], gaps["auc"][:20], strict=True):
        rows = np.repeat(np.arange(320), np.repeat(draw, 5).astype(int))
        by_seed = [
            roc_auc_score(mine.labels[rows], mine.logits[rows]) - roc_auc_score(mine.labels[rows], their.logits[rows])
            for mine, their in zip(first, second, strict=True)
        ]
        assert gap == pytest.approx(np.mean(by_seed), rel=1e-9)
    for measure, replicates in gaps.items():
        test = compare_rows(*sides, measure)
        assert (test.low, test.high) == pytest.approx(tuple(np.quantile(replicates, [0.025, 0.975])), rel=1e-9)
        tail = min(np.sum(np.array(replicates) <= 0), np.sum(np.array(replicates) >= 0))
        assert test.bootstrap == pytest.approx(2 * tail / 10_000, abs=0.04)  # as counted, where there is a count
        assert test.low < test.difference < test.high
    assert compare_rows(*sides, "logloss").delong is None


def test_blocks_keep_what_neighbouring_rows_have_in_common():
    """Where one model is ahead for long stretches and behind for others, single rows promise too much."""
    rng = np.random.default_rng(4)
    rows = 12_800
    labels = rng.random(rows) < 0.3
    stretch = np.repeat(rng.permutation(np.repeat([1.0, -1.0], 32)) + 0.15, rows // 64)
    noise = rng.normal(size=(3, rows))
    first = Predictions((labels + noise[0] + np.where(stretch > 0, 0, 0.8) * noise[1]).astype(np.float32), labels)
    second = Predictions((labels + noise[0] + np.where(stretch > 0, 0.8, 0) * noise[2]).astype(np.float32), labels)
    sides = RowStatistics.of([first]), RowStatistics.of([second])
    test = compare_rows(*sides, "auc")
    by_rows = abs(test.difference) / abs(norm.ppf(test.delong / 2))
    assert (test.high - test.low) / (2 * 1.96) > 1.5 * by_rows
    assert test.p_value == max(test.delong, test.bootstrap)


def test_equal_models_differ_by_nothing():
    first, _ = pair(7)
    sides = RowStatistics.of(first), RowStatistics.of(first)
    for measure in ("auc", "logloss"):
        test = compare_rows(*sides, measure)
        assert (test.difference, test.low, test.high, test.p_value) == (0, 0, 0, 1)
    one_class = [Predictions(first[0].logits, np.ones(len(first[0]), np.bool_))]
    alone = RowStatistics.of(one_class)
    assert compare_rows(alone, alone, "auc") is None
    with pytest.raises(ValueError, match="same rows"):
        compare_rows(sides[0], alone, "auc")


@pytest.mark.parametrize("measure", ["auc", "logloss"])
def test_the_bootstrap_calls_chance_a_difference_as_rarely_as_promised(measure):
    """Two models of the same quality, and errors that neighbours share."""
    rng = np.random.default_rng(6)
    found = []
    for _ in range(200):
        labels = rng.random(1_280) < 0.3
        shared = np.repeat(rng.normal(size=(2, 64)), 20, axis=1)
        scores = labels + rng.normal(size=(2, 1_280)) * (1 + 0.3 * shared)
        sides = [RowStatistics.of([Predictions(one.astype(np.float32), labels)]) for one in scores]
        found.append(compare_rows(*sides, measure).bootstrap)
    rate = np.mean(np.array(found) < 0.05)
    assert binomtest(round(rate * 200), 200, 0.05).pvalue > 1e-3


def test_p_goes_below_what_replicates_can_count():
    labels = np.arange(6_400) % 3 == 0
    noise = np.random.default_rng(0).normal(size=6_400)
    good, bad = (RowStatistics.of([Predictions((a * labels + noise).astype(np.float32), labels)]) for a in (3, 1))
    assert compare_rows(good, bad, "auc").bootstrap < 1e-10


@pytest.mark.parametrize("measure", ["auc", "logloss"])
def test_rows_without_weight_have_no_measure(measure):
    parts = pair(0, weighted=True)
    without = [[Predictions(one.logits, one.labels, 0 * one.weights) for one in part] for part in parts]
    assert compare_rows(*map(RowStatistics.of, without), measure) is None


@pytest.mark.parametrize("measure", ["auc", "logloss"])
def test_fewer_rows_than_blocks_are_not_tested(measure):
    first, second = pair(1, rows=64, labels=np.arange(64) % 2 == 0)
    assert compare_rows(RowStatistics.of(first), RowStatistics.of(second), measure) is not None
    few = [RowStatistics.of([one[:63] for one in side]) for side in (first, second)]
    assert compare_rows(*few, measure) is None


def test_one_click_says_nothing_of_two_aucs():
    labels = np.arange(200) == 17
    sides = [np.where(labels, height, np.linspace(-1, 1, 200)).astype(np.float32) for height in (5.0, -5.0)]
    assert delong_test(*(RowStatistics.of([Predictions(one, labels)]) for one in sides)) == 1

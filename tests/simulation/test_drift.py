"""The drift of the simulated stream."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from daes.simulation import LawDrift
from daes.simulation.catalogue import NUMERICAL

NAMES = [spec.name for spec in NUMERICAL]
ALPHA = 1e-4  # of one test of a law; a few hundred are made, with fixed seeds


def psi(first, second, bins=10):
    """Population stability index over the first sample's quantile bins, ties merged."""
    edges = np.unique(np.quantile(first, np.linspace(0, 1, bins + 1)[1:-1]))
    p, q = (np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) / len(x) for x in (first, second))
    p, q = np.maximum(p, 1e-6), np.maximum(q, 1e-6)
    return float(np.sum((q - p) * np.log(q / p)))


class TestDrift:
    def test_psi_moves_with_drift_and_rests_without(self, stream):
        for drift, moves in ((LawDrift(), True), (LawDrift(daily=0, slow=0, abrupt=0), False)):
            source = stream(drift=drift)
            for name in NAMES:
                values = source.numbers(name, 0, 280_000)
                segments = [part[~np.isnan(part)] for part in np.split(values, 14)]
                worst = max(psi(segments[0], segment) for segment in segments[1:])
                # Without drift PSI is about chi-square over the segment's size: (bins − 1) · 2 / 20 000.
                assert worst > 0.05 if moves else worst < 0.005, (name, worst)

    def test_daily_cycle_repeats_and_is_a_wave(self, stream):
        source = stream(drift=LawDrift(daily=0.5, slow=0, abrupt=0, churn=0))
        rows = source.features(0, 200_000)
        hours, days = rows.codes["hour"], np.arange(200_000) // 20_000
        for name, law in source.laws.items():
            values = rows.numerical[name]
            seen = ~np.isnan(values)
            rank = law.rank(np.where(seen, values, 1.0))
            by_hour = np.array(
                [[rank[seen & (hours == h) & (days % 2 == d)].mean() for h in range(24)] for d in (0, 1)]
            )
            assert np.corrcoef(by_hour)[0, 1] > 0.8, name
            wave = np.abs(np.fft.rfft(by_hour.mean(axis=0))[1:])
            assert wave.argmax() == 0, name
            assert 2 * wave[0] / 24 > 0.01, name

    def test_no_daily_cycle_when_off(self, still_rows, stream):
        rows = still_rows
        law = stream(drift=None).laws["bid"]
        groups = [law.rank(rows.numerical["bid"][rows.codes["hour"] == h]) for h in range(24)]
        assert stats.kruskal(*groups).pvalue > ALPHA
        wifi = [np.mean(rows.codes["connection"][rows.codes["hour"] == h] == 0) for h in range(24)]
        assert np.ptp(wifi) < 0.05
        assert np.ptp(np.bincount(rows.codes["hour"])) <= 300

    def test_traffic_and_connections_follow_the_hour(self, moving_rows):
        rows = moving_rows[:200_000]
        counts = np.bincount(rows.codes["hour"], minlength=24)
        assert counts.max() / counts.min() == pytest.approx(1.6 / 0.4, rel=0.05)
        assert counts.argmax() in (18, 19)
        wifi = [np.mean(rows.codes["connection"][rows.codes["hour"] == h] == 0) for h in range(24)]
        assert np.ptp(wifi) > 0.4

    def test_abrupt_drift_jumps_at_its_times_alone(self, discrete_ks, stream):
        source = stream(drift=LawDrift(daily=0, slow=0, abrupt=1.0, abrupt_every=2.0, churn=0))
        jumped = 0
        for name in NAMES:
            values = source.numbers(name, 0, 160_000)
            half_days = [part[~np.isnan(part)] for part in np.split(values, 16)]
            moves = np.array([psi(a, b) for a, b in pairwise(half_days)])
            boundary = np.arange(1, 16) % 4 == 0
            assert moves[~boundary].max() < 0.01, name
            jumped += int((moves[boundary] > 0.1).sum())
            first = values[:40_000]
            assert discrete_ks(first[~np.isnan(first)], source.laws[name].rank)[1] > ALPHA, name  # no jump as yet
        assert jumped >= 8  # 30 chances, two in three of which are a jump; a zero-inflated feature shows fewer

    def test_slow_drift_is_gradual_and_comes_back(self, stream):
        source = stream(drift=LawDrift(daily=0, slow=1.0, slow_period=28, abrupt=0, churn=0))
        law = source.laws["price"]
        ranks = law.rank(source.numbers("price", 0, 580_000)).reshape(29, 20_000).mean(axis=1)
        assert np.abs(np.diff(ranks)).max() < 0.1
        assert np.ptp(ranks) > 0.2
        assert abs(ranks[28] - ranks[0]) < 0.02

    @pytest.mark.parametrize("name", NAMES)
    def test_the_law_of_the_moment_is_known(self, name, moving_rows, stream):
        source = stream()
        rows = moving_rows[100_000:200_000]
        law = source.laws[name]
        values = rows.numerical[name]
        seen = ~np.isnan(values)
        shift = source._generator.shifts(rows.time)[name][seen]
        rank, within = law.ranks(values[seen], rows.codes[law.spec.context][seen], shift)
        if law.spec.steps_per_unit in (None, 100):
            assert stats.kstest(rank, "uniform").pvalue > ALPHA
            assert stats.kstest(within, "uniform").pvalue > ALPHA
        assert stats.kstest(law.rank(values[seen]), "uniform").pvalue < ALPHA  # the law without drift is another one
        # With atoms P(F(X) ≤ u) ≤ u for every u, with equality at the ranks that occur.
        levels = np.linspace(0.05, 0.95, 19)
        assert (np.searchsorted(np.sort(rank), levels) / len(rank) < levels + 0.01).all()

"""Counter-based random numbers of the simulated stream: independent, and the same from any start."""

import numpy as np
from scipy import stats

from daes.simulation.draws import Alias, Draws, uniform_of_code

ALPHA = 1e-4  # of one test of a law; a few hundred are made, with fixed seeds


class TestDraws:
    def test_any_start_gives_the_same_rows(self):
        draws = Draws(3)
        whole = draws.uniform("a", 0, 100)
        for start in range(0, 20):
            assert np.array_equal(draws.uniform("a", start, 31), whole[start : start + 31])

    def test_names_and_seeds_are_independent_uniforms(self):
        columns = [Draws(seed).uniform(name, 0, 100_000) for seed in (0, 1) for name in ("a", "b")]
        for column in columns:
            assert stats.kstest(column, "uniform").pvalue > ALPHA
        correlation = np.corrcoef(columns) - np.eye(4)
        assert np.abs(correlation).max() < 4.5 / np.sqrt(100_000)

    def test_hashed_codes_are_independent_uniforms(self):
        codes = np.arange(100_000)
        columns = [uniform_of_code(codes, salt) for salt in (0, 1, 2**40)]
        for column in columns:
            assert stats.kstest(column, "uniform").pvalue > ALPHA
            assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < 4.5 / np.sqrt(len(codes))
        assert np.abs(np.corrcoef(columns) - np.eye(3)).max() < 4.5 / np.sqrt(len(codes))

    def test_alias_follows_the_weights_of_each_group(self):
        weights = [np.array([0.5, 0.2, 0.3]), np.array([7.0]), np.array([1e-3, 4, 2, 0.1])]
        codes = [np.array([5, 6, 7]), np.array([1]), np.array([0, 6, 2, 3])]
        alias = Alias(weights, codes)
        rng = np.random.default_rng(0)
        group = rng.integers(0, 3, 200_000)
        drawn = alias(rng.random(200_000), group)
        assert (drawn[group == 1] == 1).all()
        for g in (0, 2):
            counts = np.bincount(drawn[group == g], minlength=8)
            assert counts.sum() == counts[codes[g]].sum()
            expected = weights[g] / weights[g].sum() * counts.sum()
            assert stats.chisquare(counts[codes[g]], expected).pvalue > ALPHA

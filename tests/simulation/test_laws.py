"""The laws of simulated numbers, against scipy.stats."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from daes.simulation import LawDrift
from daes.simulation.catalogue import NUMERICAL
from daes.simulation.draws import Draws
from daes.simulation.laws import NumericalLaw

NAMES = [spec.name for spec in NUMERICAL]
ALPHA = 1e-4  # of one test of a law; a few hundred are made, with fixed seeds


class TestLaws:
    @pytest.mark.parametrize("name", NAMES)
    def test_ranks_are_the_closed_forms(self, name, observed, scipy_cdf, still_rows, stream):
        law = stream().laws[name]
        values = np.unique(observed(still_rows, name)[:2000])
        count = len(law.probabilities)
        exact = np.stack([scipy_cdf(law, values, c) for c in range(count)])
        for category in range(count):
            _, ours = law.ranks(values, np.full(len(values), category))
            assert np.abs(ours - exact[category]).max() < 1e-6
        weights = law.probabilities * (1 - law.missing)
        assert np.abs(law.rank(values) - weights @ exact / weights.sum()).max() < 1e-6

    @pytest.mark.parametrize("name", NAMES)
    def test_marginal_law(self, name, discrete_ks, observed, still_rows, stream):
        law = stream().laws[name]
        distance, p_value = discrete_ks(observed(still_rows, name), law.rank)
        assert p_value > ALPHA, distance

    @pytest.mark.parametrize("name", NAMES)
    def test_law_given_the_category(self, name, discrete_ks, scipy_cdf, still_rows, stream):
        law = stream().laws[name]
        rows = still_rows
        values, codes = rows.numerical[name], rows.codes[law.spec.context]
        for category in range(len(law.probabilities)):
            own = values[(codes == category) & ~np.isnan(values)]
            assert len(own) > 1000
            distance, p_value = discrete_ks(own, lambda x, c=category: scipy_cdf(law, x, c))
            assert p_value > ALPHA, (category, distance)

    def test_the_law_test_can_fail(self, discrete_ks, observed, still_rows, stream):
        law = stream().laws["price"]
        assert discrete_ks(observed(still_rows, "price") * 1.02, law.rank)[1] < ALPHA

    def test_context_matters(self, still_rows, stream):
        rows = still_rows[:30_000]
        for name, law in stream().laws.items():
            values, codes = rows.numerical[name], rows.codes[law.spec.context]
            groups = [values[(codes == c) & ~np.isnan(values)] for c in range(len(law.probabilities))]
            assert stats.kruskal(*groups).pvalue < 1e-20, name

    @pytest.mark.parametrize(("name", "tail"), [("bid", 2.2 / 0.8), ("impressions_7d", 1.2), ("clicks_7d", 1.8)])
    def test_tails_are_power_laws(self, name, tail, scipy_law):
        (spec,) = [spec for spec in NUMERICAL if spec.name == name]
        centre = replace(spec, location=(spec.location[0], 0.0), scale=(spec.scale[0], 0.0))
        law = NumericalLaw(centre, np.ones(1), Draws(0))
        scale = float(np.exp(law.location[0]))
        far = scale * np.array([1e3, 1e4]) ** 0.9
        survival = 1 - law.zero[0]
        rest = survival * scipy_law(law, 0).sf(far)
        assert np.allclose(np.log(rest[1] / rest[0]) / np.log(far[1] / far[0]), -tail, rtol=0.02)
        assert np.allclose(1 - law.rank(far), rest, atol=1e-6)

    def test_zero_inflation(self, still_rows, stream):
        rows = still_rows
        inflated = {"discount", "impressions_7d", "clicks_7d"}
        for name, law in stream().laws.items():
            values, codes = rows.numerical[name], rows.codes[law.spec.context]
            assert bool(law.zero.any()) == (name in inflated)
            for category, zero in enumerate(law.zero):
                own = values[codes == category]
                assert (
                    stats.binomtest(int((own == 0).sum()), len(own), zero).pvalue > ALPHA if zero else (own != 0).all()
                )

    def test_counts_are_whole_numbers_with_ties(self, observed, still_rows, stream):
        rows = still_rows
        for name in ("discount", "impressions_7d", "clicks_7d", "user_age"):
            values = observed(rows, name)
            assert (values == np.floor(values)).all()
            assert stream().laws[name].spec.is_integer
            assert len(np.unique(values)) < 0.1 * len(values)
        ages = observed(rows, "user_age")
        assert ages.min() >= 13
        assert ages.max() <= 99
        cents = observed(rows, "price") * 100
        assert np.abs(cents - np.round(cents)).max() < 0.02
        assert observed(rows, "discount").max() <= 100
        assert observed(rows, "ctr_7d").max() < 1

    def test_a_counter_saturates_where_float32_stops_counting(self, observed, stream):
        rows = stream(drift=LawDrift(daily=0, slow=0, abrupt=20, abrupt_every=1)).features(20_000, 60_000)
        values = observed(rows, "impressions_7d")
        assert values.max() <= 2**24

    def test_missing_rates(self, still_rows, stream):
        rows = still_rows
        for name, law in stream().laws.items():
            missing = np.isnan(rows.numerical[name])
            if name == "ctr_7d":
                assert np.array_equal(missing, rows.numerical["impressions_7d"] == 0)
                continue
            for category, rate in enumerate(law.missing):
                own = missing[rows.codes[law.spec.context] == category]
                assert stats.binomtest(int(own.sum()), len(own), rate).pvalue > ALPHA if rate else not own.any()
        assert np.ptp(stream().laws["distance_km"].missing) > 0.4

    def test_numbers_alone_are_the_column(self, stream):
        source = stream()
        rows = source.features(10_000, 50_000)
        for name in NAMES:
            assert np.array_equal(source.numbers(name, 10_000, 50_000), rows.numerical[name], equal_nan=True)

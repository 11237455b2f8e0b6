"""The simulated ad stream: its laws, its drift, its truth, and that reading it never changes it."""

import json
from functools import cache
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from daes.simulation import AdStream, Features, LawDrift, Signal
from daes.simulation.bayes import bayes_metrics
from daes.simulation.catalogue import NUMERICAL
from daes.simulation.curves import PARTS
from daes.simulation.draws import Alias, Draws, uniform_of_code
from daes.stream.batch import Batch, batch_from_table
from daes.stream.hashing import hash_column
from daes.stream.schema import Schema, infer_schema

NAMES = [spec.name for spec in NUMERICAL]
ALPHA = 1e-4  # of one test of a law; a few hundred are made, with fixed seeds


@cache
def stream(**options):
    """A stream of 20 000 rows a day."""
    return AdStream(**{"num_rows": 600_000, "rows_per_day": 20_000, **options})


@cache
def still_rows():
    """300 000 rows without drift."""
    return stream(drift="none").features(0, 300_000)


@cache
def moving_rows():
    """400 000 rows with all kinds of drift."""
    return stream().features(0, 400_000)


@cache
def moving_labels():
    """True probabilities and labels of those rows."""
    return stream().click_probability(0, 400_000), stream().labels(0, 400_000)


def scipy_law(law, category):
    """The law of the positive part given a category, before rounding up, written anew on scipy.stats."""
    location, scale = law.location[category], law.scale[category]
    if law.spec.link.name == "exp":
        return {
            "normal": lambda: stats.lognorm(s=scale, scale=np.exp(location)),
            "weibull": lambda: stats.weibull_min(c=1 / scale, scale=np.exp(location)),
            # A Lomax variable to a power is of Burr's type XII.
            "lomax": lambda: stats.burr12(c=1 / scale, d=float(law.spec.family.name[6:-1]), scale=np.exp(location)),
        }[law.spec.family.name.partition("(")[0]]()
    return stats.norm(location, scale)


def scipy_cdf(law, values, category):
    values = np.asarray(values, dtype=np.float64)
    if law.spec.link.name != "exp":
        low, high = json.loads(law.spec.link.name.replace("between(", "[").replace(")", "]"))
        with np.errstate(divide="ignore"):
            values = np.log(values - low) - np.log(high - values)
    return law.zero[category] + (1 - law.zero[category]) * scipy_law(law, category).cdf(values)


def observed(features, name):
    values = features.numerical[name]
    return values[~np.isnan(values)]


def discrete_ks(values, cdf):
    """Kolmogorov's distance and its p-value, which is conservative where the law has atoms."""
    support, counts = np.unique(values, return_counts=True)
    at = np.cumsum(counts) / len(values)
    before = np.append(0, at[:-1])
    expected = cdf(support)
    # Just below an atom the law stands where it stands at the value before that.
    distance = np.abs(at - expected).max()
    if len(support) > 0.9 * len(values):
        distance = max(distance, np.abs(before - expected).max())
    return distance, stats.kstwobign.sf(distance * np.sqrt(len(values)))


def psi(first, second, bins=10):
    """Population stability index over the first sample's quantile bins, ties merged."""
    edges = np.unique(np.quantile(first, np.linspace(0, 1, bins + 1)[1:-1]))
    p, q = (np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) / len(x) for x in (first, second))
    p, q = np.maximum(p, 1e-6), np.maximum(q, 1e-6)
    return float(np.sum((q - p) * np.log(q / p)))


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


class TestLaws:
    @pytest.mark.parametrize("name", NAMES)
    def test_ranks_are_the_closed_forms(self, name):
        law = stream().laws[name]
        values = np.unique(observed(still_rows(), name)[:2000])
        count = len(law.probabilities)
        exact = np.stack([scipy_cdf(law, values, c) for c in range(count)])
        for category in range(count):
            _, ours = law.ranks(values, np.full(len(values), category))
            assert np.abs(ours - exact[category]).max() < 1e-6
        weights = law.probabilities * (1 - law.missing)
        assert np.abs(law.rank(values) - weights @ exact / weights.sum()).max() < 1e-6

    @pytest.mark.parametrize("name", NAMES)
    def test_marginal_law(self, name):
        law = stream().laws[name]
        distance, p_value = discrete_ks(observed(still_rows(), name), law.rank)
        assert p_value > ALPHA, distance

    @pytest.mark.parametrize("name", NAMES)
    def test_law_given_the_category(self, name):
        law = stream().laws[name]
        rows = still_rows()
        values, codes = rows.numerical[name], rows.codes[law.spec.context]
        for category in range(len(law.probabilities)):
            own = values[(codes == category) & ~np.isnan(values)]
            assert len(own) > 1000
            distance, p_value = discrete_ks(own, lambda x, c=category: scipy_cdf(law, x, c))
            assert p_value > ALPHA, (category, distance)

    def test_the_law_test_can_fail(self):
        law = stream().laws["price"]
        assert discrete_ks(observed(still_rows(), "price") * 1.02, law.rank)[1] < ALPHA

    def test_context_matters_unless_switched_off(self):
        for strength, matters in ((1.0, True), (0.0, False)):
            source = stream(drift="none", context_strength=strength)
            rows = source.features(0, 30_000)
            for name, law in source.laws.items():
                values, codes = rows.numerical[name], rows.codes[law.spec.context]
                groups = [values[(codes == c) & ~np.isnan(values)] for c in range(len(law.probabilities))]
                p_value = stats.kruskal(*groups).pvalue
                assert p_value < 1e-20 if matters else p_value > ALPHA, name

    @pytest.mark.parametrize(("name", "tail"), [("bid", 2.2 / 0.8), ("impressions_7d", 1.2), ("clicks_7d", 1.8)])
    def test_tails_are_power_laws(self, name, tail):
        law = stream(context_strength=0.0).laws[name]
        scale = float(np.exp(law.location[0]))
        far = scale * np.array([1e3, 1e4]) ** 0.9
        survival = 1 - law.zero[0]
        rest = survival * scipy_law(law, 0).sf(far)
        assert np.allclose(np.log(rest[1] / rest[0]) / np.log(far[1] / far[0]), -tail, rtol=0.02)
        assert np.allclose(1 - law.rank(far), rest, atol=1e-6)

    def test_zero_inflation(self):
        rows = still_rows()
        inflated = {"discount", "impressions_7d", "clicks_7d"}
        for name, law in stream().laws.items():
            values, codes = rows.numerical[name], rows.codes[law.spec.context]
            assert bool(law.zero.any()) == (name in inflated)
            for category, zero in enumerate(law.zero):
                own = values[codes == category]
                assert (
                    stats.binomtest(int((own == 0).sum()), len(own), zero).pvalue > ALPHA if zero else (own != 0).all()
                )

    def test_counts_are_whole_numbers_with_ties(self):
        rows = still_rows()
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

    def test_a_counter_saturates_where_float32_stops_counting(self):
        rows = stream(drift=LawDrift(daily=0, slow=0, abrupt=20, abrupt_every=1)).features(20_000, 60_000)
        values = observed(rows, "impressions_7d")
        assert values.max() <= 2**24

    def test_missing_rates(self):
        rows = still_rows()
        for name, law in stream().laws.items():
            missing = np.isnan(rows.numerical[name])
            if name == "ctr_7d":
                assert np.array_equal(missing, rows.numerical["impressions_7d"] == 0)
                continue
            for category, rate in enumerate(law.missing):
                own = missing[rows.codes[law.spec.context] == category]
                assert stats.binomtest(int(own.sum()), len(own), rate).pvalue > ALPHA if rate else not own.any()
        assert np.ptp(stream().laws["distance_km"].missing) > 0.4

    def test_numbers_alone_are_the_column(self):
        source = stream()
        rows = source.features(10_000, 50_000)
        for name in NAMES:
            assert np.array_equal(source.numbers(name, 10_000, 50_000), rows.numerical[name], equal_nan=True)


class TestCategories:
    def test_roots_follow_their_weights(self):
        rows = still_rows()
        source = stream()
        for law in source.laws.values():
            counts = np.bincount(rows.codes[law.spec.context], minlength=len(law.probabilities))
            assert stats.chisquare(counts, law.probabilities * counts.sum()).pvalue > ALPHA

    def test_roots_are_independent(self):
        rows = still_rows()
        roots = ("device", "country", "placement", "category", "format")
        for i, first in enumerate(roots):
            for second in roots[:i]:
                table = np.zeros((rows.codes[first].max() + 1, rows.codes[second].max() + 1))
                np.add.at(table, (rows.codes[first], rows.codes[second]), 1)
                assert stats.chi2_contingency(table).pvalue > ALPHA

    def test_ids_follow_zipf(self):
        rows = still_rows()
        slots, exponent = 40, 0.9
        own = rows.codes["advertiser"][rows.codes["category"] == 0]
        k = np.arange(1, slots + 2.0)
        law = np.diff(k ** (1 - exponent))
        counts = np.bincount(own, minlength=slots)
        assert len(counts) == slots
        assert stats.chisquare(counts, law / law.sum() * counts.sum()).pvalue > ALPHA
        slope = np.polyfit(np.log(np.arange(5, slots + 1)), np.log(law[4:]), 1)[0]
        assert abs(slope + exponent) < 0.05

    @pytest.mark.parametrize(
        ("child", "parent"),
        [
            ("creative", "campaign"),
            ("campaign", "advertiser"),
            ("advertiser", "category"),
            ("site", "placement"),
            ("user", "country"),
            ("gender", "user"),
            ("interest", "user"),
            ("segment", "user"),
        ],
    )
    def test_hierarchies_hold_for_all_time(self, child, parent):
        rows = moving_rows()
        of, by = (parent, child) if child in ("gender", "interest", "segment") else (child, parent)
        pairs = np.unique(np.stack([rows.codes[of], rows.codes[by]]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1]

    def test_new_ids_appear_unless_switched_off(self):
        for drift, new in (("churn", True), ("daily+slow+abrupt", False)):
            rows = stream(drift=drift, users=5000).features(0, 400_000)
            # Ten days on, creatives (3 days) are all new, of campaigns (12) and users (60) the part that has changed.
            for name, part in (("creative", 1.0), ("campaign", 10 / 12), ("user", 10 / 60)):
                codes = rows.codes[name]
                early = np.unique(codes[:200_000])
                late = np.mean(~np.isin(codes[-20_000:], early))
                assert late == pytest.approx(part if new else 0.0, abs=0.06), name

    def test_users_sets_how_many_there_are(self):
        codes = stream(drift="none", users=500).features(0, 50_000).codes["user"]
        assert len(np.unique(codes)) == pytest.approx(500, abs=12)

    def test_clock_fields_agree_with_time(self):
        table = stream().table(0, 150_000, ["time", "hour", "weekday"])
        time = table["time"].to_pandas()
        assert (np.array(time.diff()[1:]) >= np.timedelta64(0)).all()
        assert list(time.dt.hour.astype(str)) == table["hour"].to_pylist()
        assert list(time.dt.strftime("%a")) == table["weekday"].to_pylist()
        assert str(time[0]) == "2024-01-01 00:00:00"

    def test_missing_categories_are_null(self):
        table = stream().table(0, 20_000)
        rates = {name: table[name].null_count / 20_000 for name in stream().schema.categorical}
        assert 0.1 < rates["gender"] < 0.14
        assert 0.02 < rates["city"] < 0.05
        assert 0.05 < rates["browser"] < 0.15
        assert sum(rate > 0 for rate in rates.values()) == 3


class TestDrift:
    def test_psi_moves_with_drift_and_rests_without(self):
        for kinds, moves in (("daily+slow+abrupt+churn", True), ("churn", False)):
            source = stream(drift=kinds)
            for name in NAMES:
                values = source.numbers(name, 0, 280_000)
                segments = [part[~np.isnan(part)] for part in np.split(values, 14)]
                worst = max(psi(segments[0], segment) for segment in segments[1:])
                # Without drift PSI is about chi-square over the segment's size: (bins − 1) · 2 / 20 000.
                assert worst > 0.05 if moves else worst < 0.005, (name, worst)

    def test_daily_cycle_repeats_and_is_a_wave(self):
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

    def test_no_daily_cycle_when_off(self):
        rows = still_rows()
        law = stream(drift="none").laws["bid"]
        groups = [law.rank(rows.numerical["bid"][rows.codes["hour"] == h]) for h in range(24)]
        assert stats.kruskal(*groups).pvalue > ALPHA
        wifi = [np.mean(rows.codes["connection"][rows.codes["hour"] == h] == 0) for h in range(24)]
        assert np.ptp(wifi) < 0.05
        assert np.ptp(np.bincount(rows.codes["hour"])) <= 300

    def test_traffic_and_connections_follow_the_hour(self):
        rows = moving_rows()[:200_000]
        counts = np.bincount(rows.codes["hour"], minlength=24)
        assert counts.max() / counts.min() == pytest.approx(1.6 / 0.4, rel=0.05)
        assert counts.argmax() in (18, 19)
        wifi = [np.mean(rows.codes["connection"][rows.codes["hour"] == h] == 0) for h in range(24)]
        assert np.ptp(wifi) > 0.4

    def test_abrupt_drift_jumps_at_its_times_alone(self):
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

    def test_slow_drift_is_gradual_and_comes_back(self):
        source = stream(drift=LawDrift(daily=0, slow=1.0, slow_period=28, abrupt=0, churn=0))
        law = source.laws["price"]
        ranks = law.rank(source.numbers("price", 0, 580_000)).reshape(29, 20_000).mean(axis=1)
        assert np.abs(np.diff(ranks)).max() < 0.1
        assert np.ptp(ranks) > 0.2
        assert abs(ranks[28] - ranks[0]) < 0.02

    @pytest.mark.parametrize("name", NAMES)
    def test_the_law_of_the_moment_is_known(self, name):
        source = stream()
        rows = moving_rows()[100_000:200_000]
        law = source.laws[name]
        values = rows.numerical[name]
        seen = ~np.isnan(values)
        shift = source.truth.shifts(rows.time)[name][seen]
        rank, within = law.ranks(values[seen], rows.codes[law.spec.context][seen], shift)
        if law.spec.steps_per_unit in (None, 100):
            assert stats.kstest(rank, "uniform").pvalue > ALPHA
            assert stats.kstest(within, "uniform").pvalue > ALPHA
        assert stats.kstest(law.rank(values[seen]), "uniform").pvalue < ALPHA  # the law without drift is another one
        # With atoms P(F(X) ≤ u) ≤ u for every u, with equality at the ranks that occur.
        levels = np.linspace(0.05, 0.95, 19)
        assert (np.searchsorted(np.sort(rank), levels) / len(rank) < levels + 0.01).all()


class TestTruth:
    @pytest.mark.parametrize(
        "proportions",
        [
            {"value": 0.2, "rank": 0.4, "context_rank": 0.4},
            {"value": 0.6, "rank": 0.1, "context_rank": 0.3},
            {"rank": 2, "context_rank": 1},
            {"context_rank": 1},
        ],
    )
    @pytest.mark.parametrize("world", [0, 5])
    def test_proportions_are_as_set(self, proportions, world):
        source = AdStream(200_000, drift="none", signal=proportions, numerical=0.8, world=world)
        parts = source.truth.parts(source.features(0, 200_000))
        total = sum(proportions.values())
        wanted = np.array([proportions.get(part, 0) / total * 0.64 for part in PARTS])
        assert np.allclose(source.truth.curves.covariance(), np.diag(wanted), atol=1e-12)
        simulated = np.cov(np.stack([parts[part] for part in PARTS]))
        assert np.allclose(np.diag(simulated), wanted, rtol=0.02)
        scale = np.sqrt(np.outer(wanted, wanted))
        assert np.abs(simulated - np.diag(wanted))[scale > 0].max(initial=0) < 0.02 * scale.max()
        for part in PARTS:
            assert abs(parts[part].mean()) < 5 * np.sqrt(wanted.max() / 200_000)
        numerical = sum(parts[part] for part in PARTS)
        assert numerical.std() == pytest.approx(0.8, rel=0.01)

    def test_other_parts_have_the_sizes_set(self):
        source = stream(drift="none", categorical=0.9, interactions=0.5, missing=0.3)
        parts = source.truth.parts(still_rows())
        assert parts["categorical"].std() == pytest.approx(0.9, rel=0.03)
        assert parts["interaction"].std() == pytest.approx(0.5, rel=0.03)
        assert parts["missing"].std() == pytest.approx(0.3, rel=0.03)
        off = stream(drift="none", categorical=0, interactions=0, missing=0, numerical=0, base_rate=0.2)
        assert np.allclose(off.click_probability(0, 1000), 0.2)

    def test_logit_is_the_sum_of_its_parts(self):
        source = stream()
        rows = source.features(0, 1000)
        logit = source.truth.intercept + sum(source.truth.parts(rows).values())
        assert np.allclose(source.click_probability(0, 1000), 1 / (1 + np.exp(-logit)), rtol=1e-12)

    def vary(self, source, name, values, category=None):
        """The parts of one row repeated, with one feature (and its category) replaced."""
        rows = source.features(0, 1)[np.zeros(len(values), dtype=np.int64)]
        rows.numerical[name][:] = values
        if category is not None:
            rows.codes[source.laws[name].spec.context][:] = category
        return source.truth.parts(rows)

    @pytest.mark.parametrize("name", NAMES)
    def test_value_part_is_linear_then_flat(self, name):
        source = stream(drift="none")
        low, high = np.quantile(observed(still_rows(), name), (0.01, 0.99))
        inside = np.linspace(low, high, 101)[5:-5].astype(np.float32)
        part = self.vary(source, name, inside)["value"]
        slope = (part[-1] - part[0]) / (inside[-1] - inside[0])
        assert abs(slope) * (high - low) > 0.1
        assert np.allclose(part, part[0] + slope * (inside - inside[0]), atol=1e-6)
        beyond = self.vary(source, name, np.array([high * 1.3, high * 1.5], dtype=np.float32))["value"]
        assert beyond[0] == beyond[1]

    @pytest.mark.parametrize("name", ["price", "bid", "clicks_7d", "distance_km", "user_age"])
    def test_only_context_rank_depends_on_the_category(self, name):
        source = stream(drift="none")
        law = source.laws[name]
        categories = np.arange(len(law.probabilities))
        values = observed(still_rows(), name)
        value = np.float32(np.median(values[values > 0]))
        parts = self.vary(source, name, np.full(len(categories), value), categories)
        assert np.ptp(parts["rank"]) < 1e-9
        assert np.ptp(parts["value"]) < 1e-9
        assert np.ptp(parts["context_rank"]) > 0.02

    def test_same_rank_within_context_same_effect(self):
        source = stream(drift="none")
        law = source.laws["item_age_hours"]  # the only feature whose context is the format
        categories = np.arange(len(law.probabilities))
        for level in (0.1, 0.5, 0.9):
            values = np.array([scipy_law(law, c).ppf(level) for c in categories], dtype=np.float32)
            parts = self.vary(source, "item_age_hours", values, categories)
            assert np.ptp(parts["context_rank"]) < 1e-5
            assert np.ptp(parts["rank"]) > 0.02

    def test_missing_is_informative_and_silences_the_value(self):
        source = stream(drift="none")
        value = self.vary(source, "distance_km", np.array([1.0, 5.0, np.nan, np.nan], dtype=np.float32))
        assert value["missing"][0] == value["missing"][1] != value["missing"][2]
        assert value["rank"][2] == value["rank"][3]
        rows = still_rows()
        logits = source.truth.logit(rows)
        missing = np.isnan(rows.numerical["distance_km"])
        assert stats.ttest_ind(logits[missing], logits[~missing]).pvalue < 1e-10

    def test_ranks_of_the_moment_or_of_the_reference(self):
        drift = LawDrift(daily=0, slow=0, abrupt=1.5, abrupt_every=1.0, churn=0)
        for rank_law, moves in (("current", True), ("reference", False)):
            source = stream(drift=drift, rank_law=rank_law)
            early, late = source.features(0, 1), source.features(90_000, 90_001)  # days 0 and 4
            moved = Features(early.numerical, early.codes, late.time)
            before, after = source.truth.parts(early), source.truth.parts(moved)
            assert before["value"][0] == after["value"][0]
            assert (abs(before["rank"][0] - after["rank"][0]) > 1e-3) == moves

    def test_worlds_differ_and_seeds_share_one(self):
        rows = stream().features(0, 1000)
        same = AdStream(1000, seed=9, rows_per_day=20_000)
        other = AdStream(1000, seed=0, rows_per_day=20_000, world=1)
        assert np.array_equal(same.truth.logit(rows), stream().truth.logit(rows))
        assert not np.allclose(other.truth.logit(rows), stream().truth.logit(rows))
        assert not np.array_equal(same.features(0, 1000).codes["user"], rows.codes["user"])


class TestLabels:
    def test_calibrated_over_bins_of_probability(self):
        probability, labels = moving_labels()
        bins = np.argsort(np.argsort(probability)) * 50 // len(probability)
        clicks = np.bincount(bins, weights=labels)
        expected = np.bincount(bins, weights=probability)
        variance = np.bincount(bins, weights=probability * (1 - probability))
        statistic = float(np.sum((clicks - expected) ** 2 / variance))
        assert stats.chi2.sf(statistic, 50) > ALPHA
        assert stats.chi2.sf(float(np.sum((clicks * 1.05 - expected) ** 2 / variance)), 50) < ALPHA
        assert set(np.unique(labels)) == {0, 1}

    def test_labels_are_independent_given_probabilities(self):
        probability, labels = moving_labels()
        residual = labels - probability
        assert abs(np.corrcoef(residual[1:], residual[:-1])[0, 1]) < 4.5 / np.sqrt(len(residual))

    @pytest.mark.parametrize("base_rate", [0.05, 0.1, 0.25])
    def test_base_rate(self, base_rate):
        still = AdStream(140_000, drift="none", base_rate=base_rate, rows_per_day=5000)
        assert still.click_probability(0, 140_000).mean() == pytest.approx(base_rate, rel=0.03)
        moving = AdStream(140_000, base_rate=base_rate, rows_per_day=5000)
        assert moving.click_probability(0, 140_000).mean() == pytest.approx(base_rate, rel=0.03)  # four weeks


class TestBayes:
    def test_against_scikit_learn_and_all_pairs(self):
        from sklearn.metrics import log_loss, roc_auc_score

        source = stream()
        probability, label = source.click_probability(0, 800), source.labels(0, 800)
        probability = np.round(probability, 2).clip(0.01)  # ties
        ours = bayes_metrics(probability, label)
        assert ours.auc == pytest.approx(roc_auc_score(label, probability), abs=1e-12)
        assert ours.logloss == pytest.approx(log_loss(label, probability), abs=1e-12)
        right = pairs = entropy = 0.0
        for i, p in enumerate(probability):
            entropy -= p * np.log(p) + (1 - p) * np.log(1 - p)
            for j, q in enumerate(probability):
                if i != j:
                    pairs += p * (1 - q)
                    right += p * (1 - q) * (1.0 if p > q else 0.5 if p == q else 0.0)
        assert ours.expected_auc == pytest.approx(right / pairs, abs=1e-12)
        assert ours.expected_logloss == pytest.approx(entropy / 800, abs=1e-12)
        assert ours.num_rows == 800
        assert ours.click_rate == pytest.approx(label.mean())

    def test_expected_is_the_mean_of_drawn(self):
        probability = stream().click_probability(0, 5000)
        rng = np.random.default_rng(0)
        drawn = [bayes_metrics(probability, (rng.random(5000) < probability).astype(np.float32)) for _ in range(60)]
        for name in ("auc", "logloss"):
            values = np.array([getattr(each, name) for each in drawn])
            expected = getattr(drawn[0], f"expected_{name}")
            assert abs(values.mean() - expected) < 4 * values.std() / np.sqrt(60) + 1e-4

    def test_logistic_regression_on_the_true_parts_comes_close_from_below(self):
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import log_loss, roc_auc_score

        source = stream()
        parts = source.truth.parts(moving_rows()[:300_000])
        labels = moving_labels()[1]
        train, test = slice(0, 150_000), slice(150_000, 300_000)
        bayes = source.bayes_metrics(150_000, 300_000)

        def scores(names):
            inputs = np.stack([parts[name] for name in names], axis=1)
            model = LogisticRegression(C=1e6).fit(inputs[train], labels[train])
            score = model.predict_proba(inputs[test])[:, 1]
            return roc_auc_score(labels[test], score), log_loss(labels[test], score), model.coef_[0]

        auc, loss, weights = scores(list(parts))
        assert bayes.auc - 5e-4 < auc < bayes.auc + 5e-4
        assert bayes.logloss - 1e-4 < loss < bayes.logloss + 5e-4
        assert np.allclose(weights, 1, atol=0.15)
        for part in ("value", "rank", "context_rank", "categorical", "interaction"):
            auc, loss, _ = scores([name for name in parts if name != part])
            assert auc < bayes.auc - 0.003, part
            assert loss > bayes.logloss + 0.001, part

    def test_a_stronger_signal_has_a_higher_bound(self):
        bounds = [stream(numerical=size).bayes_metrics(0, 20_000).expected_auc for size in (0.0, 1.0, 2.0)]
        assert bounds[0] + 0.02 < bounds[1] < bounds[2] - 0.02
        assert stream(numerical=0, categorical=0, interactions=0, missing=0).bayes_metrics(
            0, 1000
        ).expected_auc == pytest.approx(0.5)

    def test_without_rows_or_classes(self):
        source = AdStream(0)
        assert source.bayes_metrics().num_rows == 0
        assert np.isnan(source.bayes_metrics().auc)
        assert np.isnan(bayes_metrics(np.array([0.3, 0.4]), np.zeros(2, dtype=np.float32)).auc)


class TestReading:
    @pytest.mark.parametrize("batch_size", [1, 7, 1000, 4096, 16_384, 50_000])
    def test_split_invariance(self, batch_size):
        source = AdStream(40_000, seed=3)
        whole = source.batch(0, 40_000)
        rows = 40_000 if batch_size > 100 else 300
        batches = list(islice(source.iter_batches(source.schema, batch_size), -(-rows // batch_size)))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert Batch.concat(batches)[:rows].equals(whole[:rows])

    def test_one_seed_one_stream_whatever_its_length_and_block(self):
        first, again = AdStream(40_000, seed=3), AdStream(None, seed=3)
        assert first.batch(0, 40_000).equals(again.batch(0, 40_000))
        assert not first.batch(0, 1000).equals(AdStream(40_000, seed=4).batch(0, 1000))
        blocks = AdStream(40_000, seed=3, block=999)
        assert np.array_equal(blocks.batch(0, 5000).categorical, first.batch(0, 5000).categorical)
        assert np.allclose(blocks.batch(0, 5000).numerical, first.batch(0, 5000).numerical, rtol=1e-5, equal_nan=True)
        assert np.allclose(blocks.click_probability(0, 5000), first.click_probability(0, 5000), rtol=1e-4)

    def test_seek_continues_with_the_same_boundaries(self):
        source = AdStream(30_000, seed=3)
        batches = source.iter_batches(source.schema, 700)
        for _ in range(5):
            next(batches)
        position = json.loads(json.dumps(source.position()))
        assert position == {"row": 3500, "batch": 5}
        rest = list(batches)
        fresh = AdStream(30_000, seed=3)
        fresh.seek(position)
        resumed = list(fresh.iter_batches(fresh.schema, 700))
        assert len(rest) == len(resumed) == 38
        assert all(a.equals(b) for a, b in zip(rest, resumed, strict=True))
        assert fresh.position() == {"row": 30_000, "batch": 43}
        assert list(fresh.iter_batches(fresh.schema, 700)) == []
        fresh.seek({"row": 0})
        assert next(fresh.iter_batches(fresh.schema, 10)).equals(source.batch(0, 10))

    def test_far_away_rows_cost_no_more(self):
        source = AdStream(None)
        source.seek({"row": 10**9})
        batch = next(source.iter_batches(source.schema, 100))
        assert source.position() == {"row": 10**9 + 100, "batch": 1}
        assert batch.equals(batch_from_table(source.table(10**9, 10**9 + 100), source.schema))

    def test_an_iterator_ends_with_the_next(self):
        source = AdStream(1000)
        old = source.iter_batches(source.schema, 10)
        next(old)
        source.seek({"row": 0})
        with pytest.raises(RuntimeError, match="this iterator has ended"):
            next(old)

    @pytest.mark.parametrize("batch_size", [300, 1000])
    def test_shards_share_out_the_batches(self, batch_size):
        whole = AdStream(5000, seed=2)
        batches = list(whole.iter_batches(whole.schema, batch_size))
        for rank in range(3):
            shard = AdStream(5000, seed=2, shard=(rank, 3))
            own = list(shard.iter_batches(shard.schema, batch_size))
            assert len(own) == len(batches[rank::3])
            assert all(a.equals(b) for a, b in zip(own, batches[rank::3], strict=True))
        resumed = AdStream(5000, seed=2, shard=(1, 3))
        next(resumed.iter_batches(resumed.schema, batch_size))
        rest = list(resumed.iter_batches(resumed.schema, batch_size))
        assert all(a.equals(b) for a, b in zip(rest, batches[4::3], strict=True))

    def test_batches_are_what_tables_say(self):
        source = AdStream(20_000, seed=1, rows_per_day=2000)
        for start, stop in ((0, 3000), (15_000, 20_000), (5, 5)):
            table = source.table(start, stop)
            assert batch_from_table(table, source.schema).equals(source.batch(start, stop))
        source.seek({"row": 16_000})
        tables = list(source.iter_tables(None, 1500))
        assert pa.concat_tables(tables).equals(source.table(16_000, 20_000))
        assert source.arrow_schema == source.table(0, 10).schema
        source.seek({"row": 1})
        assert next(source.iter_tables(["city", "price"], 2)).equals(source.table(1, 3, ["city", "price"]))

    def test_categories_hash_as_their_text(self):
        for rows_per_day in (50, 20_000):  # more than a year, hence many generations of ids, and one day
            source = AdStream(20_000, rows_per_day=rows_per_day)
            for start, stop in ((0, 300), (300, 20_000), (100, 900)):
                table, batch = source.table(start, stop), source.batch(start, stop)
                for column, name in enumerate(source.schema.categorical):
                    assert np.array_equal(hash_column(table[name]), batch.categorical[:, column])

    def test_any_schema(self):
        source = AdStream(1000)
        table = source.table(0, 1000)
        for schema in (
            Schema(None, ("user_age", "price"), ("city",)),
            Schema("click", (), ("creative", "device")),
            Schema("click", ("price",), (), time="time"),
            Schema("click", ("price", "clicks_7d"), ("user_age", "hour"), weight="impressions_7d"),
        ):
            source.seek({"row": 0})
            batch = next(source.iter_batches(schema, 1000))
            assert batch.equals(batch_from_table(table, schema))

    def test_the_schema_is_the_inferred_one(self):
        source = AdStream(1000)
        assert infer_schema(source.table(0, 1000)) == source.schema
        assert source.schema.num_numerical == 10
        assert source.schema.num_categorical == 20

    def test_what_is_handed_out_can_be_changed_and_what_is_kept_cannot(self):
        source = AdStream(1000)
        before = source.batch(0, 100)
        batch = next(source.iter_batches(source.schema, 100))
        batch.numerical[:] = 0
        assert source.batch(0, 100).equals(before)
        with pytest.raises(ValueError, match="read-only"):
            source.features(0, 10).numerical["price"][0] = 1

    def test_no_rows(self):
        source = AdStream(0)
        assert list(source.iter_batches(source.schema, 10)) == []
        assert source.table(0, 0).num_rows == 0
        assert source.num_rows == 0


class TestCandidates:
    def test_the_request_stays_and_the_ad_changes(self):
        source = stream()
        shown, *others = source.candidates(1000, 3000, 4)
        assert np.array_equal(source.truth.probability(shown), source.click_probability(1000, 3000))
        fields = {"device": True, "user": True, "hour": True, "site": True, "creative": False, "category": False}
        for other in others:
            for name, same in fields.items():
                assert np.array_equal(other.codes[name], shown.codes[name]) == same
            assert np.array_equal(other.numerical["user_age"], shown.numerical["user_age"], equal_nan=True)
            assert not np.array_equal(other.numerical["price"], shown.numerical["price"])
            assert np.array_equal(np.isnan(other.numerical["ctr_7d"]), other.numerical["impressions_7d"] == 0)
            assert np.corrcoef(source.truth.logit(other), source.truth.logit(shown))[0, 1] < 0.8
        assert not np.array_equal(others[0].codes["creative"], others[1].codes["creative"])

    def test_a_candidate_depends_on_its_row_and_number_alone(self):
        source = stream()
        few, many = source.candidates(1000, 1100, 2), source.candidates(990, 1050, 5)
        assert np.array_equal(few[1].codes["creative"][:50], many[1].codes["creative"][10:])
        assert np.allclose(few[1].numerical["price"][:50], many[1].numerical["price"][10:], rtol=1e-5)

    def test_candidates_follow_the_same_laws(self):
        source = stream(drift="none")
        other = source.candidates(0, 50_000, 2)[1]
        for name in ("price", "bid", "impressions_7d", "ctr_7d", "distance_km"):
            assert discrete_ks(observed(other, name), source.laws[name].rank)[1] > ALPHA
        click_rate = source.truth.probability(other).mean()
        assert click_rate == pytest.approx(source.click_probability(0, 50_000).mean(), rel=0.03)


class TestBadArguments:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_rows": -1}, "num_rows must be non-negative, got -1"),
            ({"seed": -3}, "seed must be non-negative"),
            ({"world": -1}, "world must be non-negative"),
            ({"users": 0}, "users must be positive, got 0"),
            ({"rows_per_day": 0}, "rows_per_day must be positive"),
            ({"block": 0}, "block must be positive"),
            ({"base_rate": 0.0}, "base_rate must be between 0 and 1, got 0.0"),
            ({"base_rate": float("nan")}, "base_rate must be"),
            ({"signal": {"price": 1.0}}, "signal must have no keys except value, rank, context_rank"),
            ({"signal": {"value": -1.0, "rank": 2.0}}, "value must be finite and non-negative, got -1.0"),
            ({"signal": {"value": 0.0}}, "one of value, rank and context_rank must be positive"),
            ({"numerical": -0.5}, "numerical must be finite and non-negative, got -0.5"),
            ({"categorical": float("inf")}, "categorical must be finite"),
            ({"rank_law": "past"}, "rank_law must be one of .*got 'past'"),
            ({"context_strength": -1}, "context_strength must be finite and non-negative"),
            ({"drift": "weekly"}, "drift must be .*got 'weekly'"),
            ({"drift": ""}, "drift must be"),
            ({"shard": (2, 2)}, "shard must be"),
        ],
    )
    def test_values(self, options, message):
        with pytest.raises(ValueError, match=message):
            AdStream(**options)

    @pytest.mark.parametrize("options", [{"num_rows": 1e6}, {"seed": 0.5}, {"users": "many"}, {"drift": 3}])
    def test_types(self, options):
        with pytest.raises(TypeError, match=f"{next(iter(options))} must be"):
            AdStream(**options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [({"daily": -1}, "daily must be"), ({"slow_period": 0}, "slow_period must be finite and positive")],
    )
    def test_drift(self, options, message):
        with pytest.raises(ValueError, match=message):
            LawDrift(**options)

    def test_rows_and_columns(self):
        source = AdStream(100)
        for call in (source.batch, source.table, source.features, source.click_probability, source.labels):
            for start, stop in ((-1, 5), (5, 4), (0, 101)):
                with pytest.raises(ValueError, match="rows must be 0 ≤ start ≤ stop ≤ 100"):
                    call(start, stop)
        with pytest.raises(ValueError, match="no column 'prize'; did you mean 'price'"):
            source.table(0, 1, ["prize"])
        with pytest.raises(ValueError, match="no column 'prize'"):
            source.numbers("prize", 0, 1)
        with pytest.raises(ValueError, match="no column 'prize'"):
            source.iter_batches(Schema("click", ("prize",), ()), 10)
        with pytest.raises(ValueError, match="count must be positive"):
            source.candidates(0, 1, 0)
        with pytest.raises(ValueError, match="stop must be given"):
            AdStream(None).bayes_metrics()
        for batch_size in (0, -5):
            with pytest.raises(ValueError, match="batch_size must be a positive integer"):
                source.iter_batches(source.schema, batch_size)

    @pytest.mark.parametrize(
        "position", [{}, {"batch": 1}, {"row": 1, "file": 2}, {"row": -1}, {"row": 101, "batch": 1}]
    )
    def test_positions(self, position):
        with pytest.raises(ValueError, match="position"):
            AdStream(100).seek(position)

    def test_signal_is_scaled(self):
        signal = AdStream(0, signal={"value": 2, "rank": 2}).signal
        assert (signal.value, signal.rank, signal.context_rank) == (0.5, 0.5, 0.0)
        assert AdStream(0).signal == Signal()

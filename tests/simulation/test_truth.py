"""What determines a click in the simulated stream, its labels, and the best possible scores."""

import numpy as np
import pytest
from scipy import stats

from daes.simulation import AdStream, Features, LawDrift
from daes.simulation.catalogue import NUMERICAL
from daes.simulation.curves import PARTS
from daes.simulation.truth import bayes_metrics

NAMES = [spec.name for spec in NUMERICAL]
ALPHA = 1e-4  # of one test of a law; a few hundred are made, with fixed seeds


class TestTruth:
    @pytest.mark.parametrize(
        "proportions",
        [
            {"value": 0.2, "rank": 0.4, "context_rank": 0.4},
            {"value": 0.6, "rank": 0.1, "context_rank": 0.3},
            {"value": 0, "rank": 2, "context_rank": 1},
            {"value": 0, "rank": 0, "context_rank": 1},
        ],
    )
    @pytest.mark.parametrize("world", [0, 5])
    def test_proportions_are_as_set(self, proportions, world, stream):
        source = stream(drift=None, **proportions, numerical=0.8, world=world)
        parts = source.truth.parts(source.features(0, 200_000))
        total = sum(proportions.values())
        wanted = np.array([proportions[part] / total * 0.64 for part in PARTS])
        curves = source.truth.curves
        coefficients = np.stack([curves._coefficients[part].ravel() for part in PARTS])
        assert np.allclose(coefficients @ curves._gram @ coefficients.T, np.diag(wanted), atol=1e-12)
        simulated = np.cov(np.stack([parts[part] for part in PARTS]))
        assert np.allclose(np.diag(simulated), wanted, rtol=0.02)
        scale = np.sqrt(np.outer(wanted, wanted))
        assert np.abs(simulated - np.diag(wanted))[scale > 0].max(initial=0) < 0.02 * scale.max()
        for part in PARTS:
            assert abs(parts[part].mean()) < 5 * np.sqrt(wanted.max() / 200_000)
        numerical = sum(parts[part] for part in PARTS)
        assert numerical.std() == pytest.approx(0.8, rel=0.01)

    def test_other_parts_have_the_sizes_set(self, still_rows, stream):
        source = stream(drift=None, categorical=0.9, interactions=0.5, missing=0.3)
        parts = source.truth.parts(still_rows)
        assert parts["categorical"].std() == pytest.approx(0.9, rel=0.03)
        assert parts["interaction"].std() == pytest.approx(0.5, rel=0.03)
        assert parts["missing"].std() == pytest.approx(0.3, rel=0.03)
        off = stream(drift=None, categorical=0, interactions=0, missing=0, numerical=0, base_rate=0.2)
        assert np.allclose(off.click_probability(0, 1000), 0.2)

    def test_logit_is_the_sum_of_its_parts(self, stream):
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
    def test_value_part_is_linear_then_flat(self, name, observed, still_rows, stream):
        source = stream(drift=None)
        low, high = np.quantile(observed(still_rows, name), (0.01, 0.99))
        inside = np.linspace(low, high, 101)[5:-5].astype(np.float32)
        part = self.vary(source, name, inside)["value"]
        slope = (part[-1] - part[0]) / (inside[-1] - inside[0])
        assert abs(slope) * (high - low) > 0.1
        assert np.allclose(part, part[0] + slope * (inside - inside[0]), atol=1e-6)
        beyond = self.vary(source, name, np.array([high * 1.3, high * 1.5], dtype=np.float32))["value"]
        assert beyond[0] == beyond[1]

    @pytest.mark.parametrize("name", ["price", "bid", "clicks_7d", "distance_km", "user_age"])
    def test_only_context_rank_depends_on_the_category(self, name, observed, still_rows, stream):
        source = stream(drift=None)
        law = source.laws[name]
        categories = np.arange(len(law.probabilities))
        values = observed(still_rows, name)
        value = np.float32(np.median(values[values > 0]))
        parts = self.vary(source, name, np.full(len(categories), value), categories)
        assert np.ptp(parts["rank"]) < 1e-9
        assert np.ptp(parts["value"]) < 1e-9
        assert np.ptp(parts["context_rank"]) > 0.02

    def test_same_rank_within_context_same_effect(self, scipy_law, stream):
        source = stream(drift=None)
        law = source.laws["item_age_hours"]  # the only feature whose context is the format
        categories = np.arange(len(law.probabilities))
        for level in (0.1, 0.5, 0.9):
            values = np.array([scipy_law(law, c).ppf(level) for c in categories], dtype=np.float32)
            parts = self.vary(source, "item_age_hours", values, categories)
            assert np.ptp(parts["context_rank"]) < 1e-5
            assert np.ptp(parts["rank"]) > 0.02

    def test_missing_is_informative_and_silences_the_value(self, still_rows, stream):
        source = stream(drift=None)
        value = self.vary(source, "distance_km", np.array([1.0, 5.0, np.nan, np.nan], dtype=np.float32))
        assert value["missing"][0] == value["missing"][1] != value["missing"][2]
        assert value["rank"][2] == value["rank"][3]
        rows = still_rows
        logits = source.truth.logit(rows)
        missing = np.isnan(rows.numerical["distance_km"])
        assert stats.ttest_ind(logits[missing], logits[~missing]).pvalue < 1e-10

    def test_ranks_are_those_of_the_moment(self, stream):
        source = stream(drift=LawDrift(daily=0, slow=0, abrupt=1.5, abrupt_every=1.0, churn=0))
        early, late = source.features(0, 1), source.features(90_000, 90_001)  # days 0 and 4
        moved = Features(early.numerical, early.codes, late.time)
        before, after = source.truth.parts(early), source.truth.parts(moved)
        assert before["value"][0] == after["value"][0]
        assert abs(before["rank"][0] - after["rank"][0]) > 1e-3

    def test_worlds_differ_and_seeds_share_one(self, stream):
        rows = stream().features(0, 1000)
        same = AdStream(1000, seed=9, rows_per_day=20_000)
        other = AdStream(1000, seed=0, rows_per_day=20_000, world=1)
        assert np.array_equal(same.truth.logit(rows), stream().truth.logit(rows))
        assert not np.allclose(other.truth.logit(rows), stream().truth.logit(rows))
        assert not np.array_equal(same.features(0, 1000).codes["user"], rows.codes["user"])


class TestLabels:
    def test_calibrated_over_bins_of_probability(self, moving_labels):
        probability, labels = moving_labels
        bins = np.argsort(np.argsort(probability)) * 50 // len(probability)
        clicks = np.bincount(bins, weights=labels)
        expected = np.bincount(bins, weights=probability)
        variance = np.bincount(bins, weights=probability * (1 - probability))
        statistic = float(np.sum((clicks - expected) ** 2 / variance))
        assert stats.chi2.sf(statistic, 50) > ALPHA
        assert stats.chi2.sf(float(np.sum((clicks * 1.05 - expected) ** 2 / variance)), 50) < ALPHA
        assert set(np.unique(labels)) == {0, 1}

    def test_labels_are_independent_given_probabilities(self, moving_labels):
        probability, labels = moving_labels
        residual = labels - probability
        assert abs(np.corrcoef(residual[1:], residual[:-1])[0, 1]) < 4.5 / np.sqrt(len(residual))

    @pytest.mark.parametrize("base_rate", [0.05, 0.1, 0.25])
    def test_base_rate(self, base_rate, stream):
        still = stream(drift=None, base_rate=base_rate, rows_per_day=5000)
        assert still.click_probability(0, 140_000).mean() == pytest.approx(base_rate, rel=0.03)
        moving = stream(base_rate=base_rate, rows_per_day=5000)
        assert moving.click_probability(0, 140_000).mean() == pytest.approx(base_rate, rel=0.03)  # four weeks


class TestBayes:
    def test_against_scikit_learn(self, stream):
        from sklearn.metrics import log_loss, roc_auc_score

        source = stream()
        probability, label = source.click_probability(0, 800), source.batch(0, 800).label
        probability = np.round(probability, 2).clip(0.01)  # ties
        ours = bayes_metrics(probability, label)
        assert ours.auc == pytest.approx(roc_auc_score(label, probability), abs=1e-12)
        assert ours.logloss == pytest.approx(log_loss(label, probability), abs=1e-12)

    def test_logistic_regression_on_the_true_parts_comes_close_from_below(self, moving_labels, moving_rows, stream):
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import log_loss, roc_auc_score

        source = stream()
        parts = source.truth.parts(moving_rows[:300_000])
        labels = moving_labels[1]
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

    def test_a_stronger_signal_has_a_higher_bound(self, stream):
        bounds = [stream(numerical=size).bayes_metrics(0, 20_000).auc for size in (0.0, 1.0, 2.0)]
        assert bounds[0] + 0.02 < bounds[1] < bounds[2] - 0.02
        assert stream(numerical=0, categorical=0, interactions=0, missing=0).bayes_metrics(
            0, 1000
        ).auc == pytest.approx(0.5)

    def test_without_rows_or_classes(self):
        source = AdStream(0)
        assert np.isnan(source.bayes_metrics().auc)
        assert np.isnan(source.bayes_metrics().logloss)
        assert np.isnan(bayes_metrics(np.array([0.3, 0.4]), np.zeros(2, dtype=np.float32)).auc)

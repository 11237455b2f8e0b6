"""The best possible scores of the simulated stream."""

import numpy as np
import pytest

from daes.simulation import AdStream
from daes.simulation.bayes import bayes_metrics


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

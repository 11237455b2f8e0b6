from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from daes.distribution.base import inverted_cdf
from daes.stream.dataset import Dataset
from daes.stream.source import BatchSource
from daes.training import offline
from daes.training.config import TrainConfig
from daes.training.offline import OfflineConfig, train_offline
from daes.training.step import TrainingError

TRAIN = TrainConfig(batch_size=100, optimizer="adam", learning_rate=0.01)


class Uncounted(BatchSource):
    """A source that does not know its length, as a CSV file does not."""

    num_rows = None


def parameters(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("kind", [BatchSource, Uncounted])
def test_the_parts_are_chronological_and_tested_on_their_end(make_rows, make_model, schema, kind):
    rows = make_rows(1000)
    model = make_model()
    result = train_offline(model, kind(rows, schema), OfflineConfig(TRAIN, epochs=2))
    assert result.rows == (800, 100, 100)
    assert len(result.history) == 2
    for part, scores in ((rows[900:], result.test), (rows[800:900], result.valid)):
        chances = model.predict_proba(part)
        assert scores["auc"] == pytest.approx(roc_auc_score(part.label, chances), rel=1e-12)
        assert scores["logloss"] == pytest.approx(log_loss(part.label, chances), rel=1e-5)
        assert scores["rows"] == 100


def test_one_epoch_is_one_pass_in_order(make_rows, make_model, schema):
    rows = make_rows(1000)
    model, other = make_model(), make_model()
    train_offline(model, BatchSource(rows, schema), OfflineConfig(TRAIN, epochs=1))
    optimizer = torch.optim.Adam(other.parameters(), lr=0.01, fused=True)
    torch.manual_seed(0)
    other.train()
    for start in range(0, 800, 100):
        batch = rows[start : start + 100]
        optimizer.zero_grad()
        if start == 0:
            other.observe(*other.prepare(batch).features)
        with other.without_observing():
            other.loss(batch).backward()
        optimizer.step()
        if start:
            other.observe(*other.prepare(batch).features)
        other.count(other.prepare(batch))
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def scripted(monkeypatch, losses):
    """Let the validation LogLoss of the epochs be these; the test part is evaluated as it is."""
    plain, script = offline.evaluate_part, iter(losses)

    def evaluate(step, source, rows, on_batch=None):
        scores = plain(step, source, rows, on_batch)
        return scores if rows.stop == 1000 else {**scores, "logloss": next(script)}

    monkeypatch.setattr(offline, "evaluate_part", evaluate)


@pytest.mark.parametrize(
    ("losses", "patience", "best", "run"),
    [
        ([0.5, 0.4, 0.3, 0.6, 0.6, 0.6, 0.6, 0.6, 0.1], 5, 3, 8),
        ([0.5, 0.6, 0.45, 0.6, 0.44, 0.7, 0.7, 0.3], 2, 5, 7),
        ([0.5, 0.5, 0.5, 0.5], 2, 1, 3),
        ([0.9, 0.8, 0.7, 0.6], 5, 4, 4),
        ([float("nan"), 0.8, float("inf"), 0.9], 5, 2, 4),
    ],
)
def test_the_epoch_with_the_lowest_validation_loss_is_kept(
    make_rows, make_model, schema, monkeypatch, losses, patience, best, run
):
    rows = make_rows(1000)
    scripted(monkeypatch, losses)
    model = make_model()
    config = OfflineConfig(TRAIN, epochs=len(losses), patience=patience)
    result = train_offline(model, BatchSource(rows, schema), config)
    assert (result.epoch, len(result.history)) == (best, run)
    assert result.valid["logloss"] == losses[best - 1]
    monkeypatch.undo()
    other = make_model()
    scripted(monkeypatch, sorted(losses[:best], reverse=True))
    train_offline(other, BatchSource(rows, schema), OfflineConfig(TRAIN, epochs=best))
    for mine, theirs in zip(parameters(model), parameters(other), strict=True):
        assert torch.equal(mine, theirs)


def test_without_a_finite_loss_there_is_no_result(make_rows, make_model, schema, monkeypatch):
    scripted(monkeypatch, [float("nan")] * 9)
    with pytest.raises(TrainingError, match="none of 5 epochs had a finite LogLoss"):
        train_offline(make_model(), BatchSource(make_rows(1000), schema), OfflineConfig(TRAIN))


def test_estimation_is_a_single_pass(make_rows, make_model, schema):
    rows = make_rows(1000)
    model = make_model(categorical_options={"mode": "vocabulary", "min_count": 2})
    train_offline(model, BatchSource(rows, schema), OfflineConfig(TRAIN, epochs=3))
    seen = np.isfinite(rows.numerical[:800]).sum(axis=0)
    np.testing.assert_array_equal(model.distributions.count, seen)
    assert int(model.categorical.vocabulary.observed) == 800


def test_an_offline_method_is_fitted_on_the_training_part(make_rows, make_model, schema):
    rows = make_rows(1000)
    model = make_model("efd")
    train_offline(model, BatchSource(rows, schema), OfflineConfig(TRAIN, epochs=1))
    values = rows.numerical[:800, 0].astype(np.float64)
    expected = inverted_cdf(np.sort(values[np.isfinite(values)]), np.arange(1, 10) / 10)
    np.testing.assert_allclose(model.numerical.edges[0].numpy(), expected, rtol=1e-6)


def test_shuffling_is_by_the_seed_and_within_the_training_part(make_rows, make_model, schema, monkeypatch):
    rows = make_rows(1000)
    seen = []
    plain = offline.TrainingStep.learn

    def learn(self, batch, row):
        seen.append(batch.numerical[:, 0].copy())
        return plain(self, batch, row)

    monkeypatch.setattr(offline.TrainingStep, "learn", learn)
    runs = []
    for seed in (0, 0, 1):
        seen.clear()
        config = OfflineConfig(TrainConfig(batch_size=100, seed=seed), epochs=2, shuffle=True)
        train_offline(make_model(), BatchSource(rows, schema), config)
        runs.append(np.concatenate(seen).reshape(2, 800))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2], equal_nan=True)
    assert not np.array_equal(runs[0][0], runs[0][1], equal_nan=True)
    for epoch in runs[0]:
        np.testing.assert_array_equal(np.sort(epoch), np.sort(rows.numerical[:800, 0]))
        assert not np.array_equal(epoch, rows.numerical[:800, 0], equal_nan=True)


def test_progress_counts_the_rows_of_all_epochs(make_rows, make_model, schema):
    calls = []
    source = Dataset(BatchSource(make_rows(5000), schema), schema, limit=1000)
    config = OfflineConfig(TRAIN, epochs=2)
    train_offline(make_model(), source, config, progress=lambda done, total: calls.append((done, total)))
    assert calls[0] == (100, 1600)
    assert calls[-1] == (1600, 1600)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": (0.5, 0.5, 0.0)}, "split must be three positive parts"),
        ({"split": (0.5, 0.2, 0.2)}, "split must be three positive parts"),
        ({"epochs": 0}, "epochs must be positive, got 0"),
        ({"patience": 0}, "patience must be positive"),
    ],
)
def test_the_configuration_is_checked(change, message):
    with pytest.raises(ValueError, match=message):
        OfflineConfig(**change)


def test_too_few_rows_are_an_error(make_rows, make_model, schema):
    with pytest.raises(ValueError, match="got 4 rows split into 3, 1 and 0"):
        train_offline(make_model(), BatchSource(make_rows(4), schema))


def test_the_scores_of_the_test_part_are_those_that_are_judged(make_rows, make_model, schema):
    seen = []
    config = OfflineConfig(TRAIN, epochs=2)
    result = train_offline(
        make_model(),
        BatchSource(make_rows(1000), schema),
        config,
        on_test=lambda batch, logits: seen.append((batch.label, logits)),
    )
    labels, logits = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    assert labels.size == 100
    assert roc_auc_score(labels, logits) == pytest.approx(result.test["auc"], rel=1e-12)


def test_the_loss_of_an_epoch_is_that_of_the_batches_it_learned_from(make_rows, make_model, schema):
    rows, config = make_rows(1000), TrainConfig(batch_size=100, bad_batch="skip")
    clean = train_offline(make_model(), BatchSource(rows, schema), OfflineConfig(config, epochs=1))
    assert 0.3 < clean.history[0]["train_logloss"] < 1
    weight = np.ones(1000, np.float32)
    weight[100:500] = np.nan  # four of eight batches
    part = BatchSource(replace(rows, weight=weight), schema)
    half = train_offline(make_model(), part, OfflineConfig(config, epochs=1))
    assert len(half.bad_batches) == 4
    assert half.history[0]["train_logloss"] == pytest.approx(clean.history[0]["train_logloss"], rel=0.2)

"""One trial: what it is judged on, and what it starts from."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from daes.experiments import trial as trial_module
from daes.experiments.trial import Trial, run_trial
from daes.model import CTRModel
from daes.stream.dataset import Dataset
from daes.stream.source import BatchSource
from daes.training.config import TrainConfig
from daes.training.trainer import StreamTrainer

TRAIN = TrainConfig(batch_size=250, optimizer="adam", learning_rate=0.01)
MODEL = {"dim": 4, "backbone_options": {"hidden": (8,)}}


@pytest.fixture(scope="module")
def data():
    return Dataset.open("adstream:2000")


def without_clock(result):
    return replace(result, seconds=0.0, key="")


def test_a_stream_trial_is_judged_on_all_rows_and_on_the_second_half(data):
    scores = []
    trial = Trial("daes", "daes", "fnn", 3, train=TRAIN, model=MODEL, sample_rows=500)
    result = run_trial(trial, data)
    rows = data.source.batch(0, 2000, data.schema)
    torch.manual_seed(3)
    options = {**MODEL, "embedding": "daes", "backbone": "fnn", "embedding_options": {"seed": 3}}
    model = CTRModel.from_sample(data.schema, rows[:500], **options)
    trainer = StreamTrainer(model, replace(TRAIN, seed=3), callbacks=[lambda t, b, logits: scores.append(logits)])
    trainer.run(data.from_start())
    logits = np.concatenate(scores).astype(np.float64)
    chances = 1 / (1 + np.exp(-logits))
    assert result.metrics["auc"] == pytest.approx(roc_auc_score(rows.label, logits), rel=1e-12)
    assert result.metrics["logloss"] == pytest.approx(log_loss(rows.label, chances), rel=1e-9)
    assert result.metrics["half_auc"] == pytest.approx(roc_auc_score(rows.label[1000:], logits[1000:]), rel=1e-12)
    assert result.metrics["half_logloss"] == pytest.approx(log_loss(rows.label[1000:], chances[1000:]), rel=1e-9)
    assert (result.rows, result.bad_batches, result.error) == (2000, 0, None)
    assert result.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert result.history["rows"][-1] == 2000
    assert {len(values) for values in result.history.values()} == {len(result.history["rows"])}


def test_a_trial_gives_the_same_result_from_memory_and_from_the_source(data):
    trial = Trial("ple", "ple", "fnn", 0, train=TRAIN, model=MODEL, sample_rows=500)
    in_memory, read = data.in_memory(), data.head(None).in_memory(max_bytes=1000)
    assert isinstance(in_memory.source, BatchSource)
    assert not isinstance(read.source, BatchSource)
    assert without_clock(run_trial(trial, in_memory)) == without_clock(run_trial(trial, read))
    less = data.head(700)
    results = [run_trial(trial, rows) for rows in (less, less.in_memory())]
    assert results[0].rows == 700
    assert without_clock(results[0]) == without_clock(results[1])


@pytest.mark.parametrize("backbone", ["fnn", "deepfm"])
def test_one_seed_starts_all_methods_alike(data, backbone):
    sample = data.source.batch(0, 500, data.schema)
    models = []
    for method in ("efd", "fe", "daes-tran", "daes-gate"):
        trial = Trial(method, method, backbone, 5, model=MODEL)
        models.append(trial_module._build(trial, data, sample))
    other = trial_module._build(Trial("fe", "fe", backbone, 6, model=MODEL), data, sample)
    for model in models[1:]:
        assert torch.equal(model.categorical.weight, models[0].categorical.weight)
        for mine, theirs in zip(model.backbone.parameters(), models[0].backbone.parameters(), strict=True):
            assert torch.equal(mine, theirs)
    assert not torch.equal(other.categorical.weight, models[0].categorical.weight)
    assert models[2].distributions.seed == 5
    # What is shared is each part's own randomness, not one stream for all parts.
    first = models[1].numerical.table.flatten()[:16]
    assert not torch.equal(first, models[1].categorical.weight.flatten()[:16])


def test_offline_methods_are_fitted_again_on_the_past(data, monkeypatch):
    fits = []
    fit = CTRModel.fit_embedding
    monkeypatch.setattr(
        CTRModel, "fit_embedding", lambda self, sample: (fits.append(len(sample)), fit(self, sample))[1]
    )
    trial = Trial("ple", "ple", "fnn", 0, train=TrainConfig(batch_size=50), model=MODEL, sample_rows=200, refit=True)
    refitted = run_trial(trial, data)
    assert fits == [200, 250, 500, 1000]
    fits.clear()
    late = replace(trial, train=TrainConfig(batch_size=50, label_delay=3))
    run_trial(late, data)
    assert fits == [200, 100, 350, 850]
    fits.clear()
    once = run_trial(replace(trial, refit=False), data)
    run_trial(replace(trial, method="fe"), data)
    assert fits == [200, 200]  # a streaming method is asked once, and does nothing
    assert refitted.metrics["half_auc"] != once.metrics["half_auc"]
    early = slice(0, 250)
    assert np.array_equal(refitted.predictions().logits[early], once.predictions().logits[early])

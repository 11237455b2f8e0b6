import numpy as np
import pytest

from daes.experiments.compare import compare
from daes.experiments.rivals import RetrainedTrees
from daes.experiments.trial import Trial, run_trial
from daes.metrics.auc import exact_auc
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training.config import TrainConfig

pytest.importorskip("lightgbm")
SCHEMA = Schema(label="y", numerical=("a",), categorical=("f", "id"))


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(count, 1)).astype(np.float32)
    numbers[rng.random(count) < 0.1] = np.nan
    categories = np.column_stack([rng.integers(0, 5, count), rng.integers(1, 2000, count)])
    chance = 1 / (1 + np.exp(-(categories[:, 0] - 2.0) - np.nan_to_num(numbers[:, 0])))
    return Batch(numbers, categories, (rng.random(count) < chance).astype(np.float32))


def test_it_is_retrained_on_the_past_after_every_part():
    stream = rows(1600)
    model = RetrainedTrees(SCHEMA, 1600, trees=20)
    trained = []
    finish = model.finish
    model.finish = lambda: (trained.append(model._rows), finish())
    scores = []
    for start in range(0, 1600, 50):
        batch = stream[start : start + 50]
        scores.append(model.score(batch))
        model.learn(batch)
    assert trained == list(range(100, 1600, 100))
    scores = np.concatenate(scores)
    first = np.unique(scores[:50])
    assert first == pytest.approx([0.0])  # nothing is known yet
    assert exact_auc(scores[800:], stream.label[800:]) > 0.7
    assert model.size > 20


def test_scores_know_nothing_of_the_future():
    stream = rows(1200)
    scrambled = Batch.concat([stream[:700], rows(500, seed=9)])
    found = []
    for rows_of in (stream, scrambled):
        model, scores = RetrainedTrees(SCHEMA, 1200, trees=5), []
        for start in range(0, 1200, 100):
            scores.append(model.score(rows_of[start : start + 100]))
            model.learn(rows_of[start : start + 100])
        found.append(np.concatenate(scores[:7]))
    assert np.array_equal(*found)


def test_categories_are_codes_by_frequency_and_large_fields_are_counted_too():
    stream = rows(3000)
    model = RetrainedTrees(SCHEMA, None, trees=2)
    model.learn(stream)
    model.finish()
    table = model._table(stream)
    assert table.shape == (3000, 1 + 2 + 1)
    assert np.isnan(table[stream.categorical[:, 0] == 0, 1]).all()
    values, counts = np.unique(stream.categorical[:, 1], return_counts=True)
    most = values[np.argmax(counts)]
    assert table[stream.categorical[:, 1] == most, 3] == pytest.approx(counts.max())
    assert (table[stream.categorical[:, 1] == most, 2] < 10).all()
    assert table[:, 2].max() == 254
    unknown = model._table(Batch(np.zeros((1, 1), np.float32), np.array([[99, 99_999]])))
    assert unknown.tolist() == [[0.0, 254.0, 254.0, 0.0]]


def test_rivals_wait_for_labels_as_models_do():
    data = Dataset.open("adstream:1600")
    train = TrainConfig(batch_size=50, label_delay=8)
    result = run_trial(Trial("lightgbm", "lightgbm", "fnn", 0, train=train), data)
    logits = result.predictions().logits
    # The first training needs 100 rows whose labels are known: those are there once 100 + 8 · 50 rows were read.
    assert np.unique(logits[:450]).size == 1
    assert np.unique(logits[550:]).size > 10


def test_rivals_stand_in_every_column_of_a_comparison(tmp_path):
    data = Dataset.open("adstream:2000")
    comparison = compare(
        data,
        methods={"daes": {}, "lightgbm": {"trees": 20}, "ftrl": {}},
        backbones=["fnn", "lr"],
        seeds=2,
        train=TrainConfig(batch_size=100),
        model={"dim": 4},
        sample_rows=500,
        out=tmp_path,
    )
    assert comparison.failures == []
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 4 + 2
    for rival in ("lightgbm", "ftrl"):
        columns = [comparison.summary(rival, backbone, "half_auc").values for backbone in ("fnn", "lr")]
        assert columns[0] == columns[1]
        assert len(columns[0]) == 1
    assert {test.baseline for test in comparison.tests} == {"lightgbm", "ftrl"}
    assert {test.backbone for test in comparison.tests} == {"fnn", "lr"}


@pytest.mark.parametrize("rival", ["lightgbm", "ftrl"])
def test_rivals_by_the_papers_protocol(rival):
    trial = Trial(rival, rival, "fnn", 0, "paper", train=TrainConfig(batch_size=100))
    result = run_trial(trial, Dataset.open("adstream:5000"))
    assert result.rows == 4000
    assert len(result.predictions()) == 500
    assert set(result.metrics) == {"auc", "logloss"}
    assert result.metrics["auc"] > 0.55

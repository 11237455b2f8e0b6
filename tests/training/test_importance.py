import numpy as np
import pytest
import torch

from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training import importance as module
from daes.training.config import TrainConfig
from daes.training.importance import RecentRows, feature_importance
from daes.training.run import train_run
from daes.training.scoring import logits
from daes.training.step import TrainingStep

SCHEMA = Schema("click", ("signal", "noise"), ("city", "void"))


def rows(count=3000, seed=0):
    """Clicks that depend on a number and a category, and not on another of each kind."""
    random = np.random.default_rng(seed)
    numerical = random.normal(size=(count, 2)).astype(np.float32)
    categorical = random.integers(1, 6, (count, 2))
    logit = 1.5 * numerical[:, 0] + np.where(categorical[:, 0] == 3, 2.5, -0.5)
    label = (random.random(count) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return Batch(numerical, categorical, label)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = CTRModel(SCHEMA, "daes", "fnn", dim=4, sizes=50, evidence=True)
    step = TrainingStep(made, TrainConfig(batch_size=50, learning_rate=0.01))
    batch = rows()
    for start in range(0, len(batch), 50):
        step.learn(batch[start : start + 50], start)
    return made.eval()


def test_columns_that_matter_come_first_categories_included(model):
    found = feature_importance(model, rows(1000, seed=1))
    assert found.rows == 1000
    assert [column.name for column in found.columns[:2]] == ["signal", "city"]
    for column in found.columns[:2]:
        assert column.logloss > 5 * column.error > 0
        assert column.auc > 0.03
    for column in found.columns[2:]:
        assert abs(column.logloss) < 0.02
    assert {column.name: column.kind for column in found.columns}["city"] == "categorical"


def test_it_is_the_rise_of_the_loss_by_hand(model):
    batch = rows(500, seed=2)
    order = np.random.default_rng(0).permutation(500)
    changed = batch.numerical.copy()
    changed[:, 0] = changed[order, 0]

    def loss(numerical):
        z = logits(model, Batch(numerical, batch.categorical))
        return np.logaddexp(0, np.where(batch.label == 1, -z, z))

    signal = next(column for column in feature_importance(model, batch, seed=0).columns if column.name == "signal")
    rise = loss(changed) - loss(batch.numerical)
    assert signal.logloss == pytest.approx(rise.mean(), rel=1e-6)
    assert signal.error == pytest.approx(rise.std() / np.sqrt(500), rel=1e-6)


def test_evidence_tells_columns_apart_too(model):
    evidence = {column.name: column.evidence for column in feature_importance(model, rows(200)).columns}
    assert min(evidence["signal"], evidence["city"]) > 3 * max(evidence["noise"], evidence["void"])
    plain = CTRModel(SCHEMA, "fe", "fnn", dim=4, sizes=50, evidence=False)
    assert {column.evidence for column in feature_importance(plain, rows(200)).columns} == {None}


def test_rows_without_weight_do_not_count(model):
    batch, other = rows(400, seed=3), rows(400, seed=4)
    both = Batch.concat([batch, Batch(other.numerical, other.categorical, 1 - other.label)])
    weight = np.repeat(np.array([1, 0], np.float32), 400)
    weighted = feature_importance(model, Batch(both.numerical, both.categorical, both.label, weight))
    assert weighted.logloss == pytest.approx(feature_importance(model, batch).logloss)


def test_of_many_columns_the_groups_that_matter_are_taken_apart(monkeypatch):
    monkeypatch.setattr(module, "MOST_COLUMNS", 8)
    random = np.random.default_rng(0)
    schema = Schema("click", tuple(f"c{place}" for place in range(40)), ())
    made = CTRModel(schema, "fe", "lr", dim=2)
    values = random.normal(size=(2000, 40)).astype(np.float32)
    batch = Batch(values, np.empty((2000, 0), np.int64), (values[:, 33] > 0).astype(np.float32))
    optimizer = torch.optim.Adam(made.parameters(), 0.1)
    for _ in range(20):
        optimizer.zero_grad()
        made.loss(batch).backward()
        optimizer.step()
    columns = feature_importance(made, batch).columns
    assert columns[0].name == "c33"
    assert len(columns) == 40
    assert 0 < sum(np.isfinite(column.logloss) for column in columns) <= 8


def test_labels_are_needed(model):
    with pytest.raises(ValueError, match="batch must have rows with labels, got 3 rows"):
        feature_importance(model, Batch(rows(3).numerical, rows(3).categorical))


def numbered(start, count):
    values = np.arange(start, start + count, dtype=np.float32)[:, None]
    return Batch(values, np.empty((count, 0), np.int64), np.zeros(count, np.float32))


@pytest.mark.parametrize("batch", [7, 500, 5000])
def test_recent_rows_are_evenly_spaced_in_the_window_and_bounded(batch):
    recent = RecentRows(columns=100, window=10_000)
    for start in range(0, 35_000, batch):
        recent.update(numbered(start, batch))
        assert sum(map(len, recent._parts)) <= 2 * recent.most + batch
    kept = recent.sample().numerical[:, 0]
    assert recent.most / 2 <= len(kept) <= recent.most
    assert kept[0] >= recent.rows - 10_000
    assert len(set(np.diff(kept))) == 1


def test_recent_rows_of_a_short_stream_are_all_of_it():
    recent = RecentRows(columns=4, window=1000)
    assert recent.sample() is None
    recent.update(numbered(0, 300))
    np.testing.assert_array_equal(recent.sample().numerical[:, 0], np.arange(300))


def test_recent_rows_continue_from_a_state():
    whole, before = RecentRows(10, 5000), RecentRows(10, 5000)
    for start in range(0, 20_000, 400):
        whole.update(numbered(start, 400))
        if start < 9000:
            before.update(numbered(start, 400))
    after = RecentRows(10, 5000)
    after.load_state_dict(before.state_dict())
    for start in range(9200, 20_000, 400):
        after.update(numbered(start, 400))
    assert after.sample().equals(whole.sample())


def test_a_run_leaves_it_in_its_folder(tmp_path):
    run = train_run(
        Dataset.open("adstream:2000"), tmp_path / "run", model={"backbone": "fnn"}, config=TrainConfig(batch_size=200)
    )
    found = run.folder.read("importance")
    assert {column["name"] for column in found["columns"]} == {
        *run.model.schema.numerical,
        *run.model.schema.categorical,
    }
    assert found["rows"] == 2000
    rises = [column["logloss"] for column in found["columns"]]
    assert rises == sorted(rises, reverse=True)


def test_batches_of_which_no_row_is_kept_leave_nothing():
    recent = RecentRows(columns=1000, window=10_000)
    for start in range(0, 20_000, 4):
        values = np.arange(start, start + 4, dtype=np.float32)
        recent.update(Batch(values[:, None], np.empty((4, 0), np.int64), np.zeros(4, np.float32)))
    assert all(len(part) for part in recent._parts)
    assert recent._kept == sum(map(len, recent._parts)) <= 2 * recent.most

"""Requests against the rows of training: what a model knows of them, what is measured, when it is an alarm."""

import logging
import shutil
import time

import numpy as np
import pytest

from daes.distribution import ks_statistic, psi
from daes.serving.drift import DriftWatch, LearnedRows
from daes.serving.versions import ModelFolder
from daes.stream.batch import Batch
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price", "age"), ("city", "device"))


@pytest.fixture(scope="module")
def loaded(trained):
    return ModelFolder(trained).load_newest()


@pytest.fixture(scope="module")
def learned(trained):
    return LearnedRows.of(ModelFolder(trained).load_newest())


def test_what_the_model_knows_of_its_rows(learned, rows_of):
    batch = rows_of(2000, seed=0)  # those it was trained on
    numbers, categories = np.isnan(batch.numerical).mean(axis=0), (batch.categorical == 0).mean(axis=0)
    np.testing.assert_allclose(learned.missing, np.append(numbers, categories), atol=1e-12)
    once = [(np.unique(column[column != 0], return_counts=True)[1] == 1).mean() for column in batch.categorical.T]
    assert once == [0.0, 0.0]
    assert learned.unseen.tolist() == [0.0, 0.0]


def test_the_same_kind_of_rows_is_no_alarm(learned, rows_of):
    report = learned.compare(rows_of())
    assert report["alarms"] == []
    for column in report["numerical"].values():
        assert 0 <= column["psi"] < 0.05
        assert column["missing"] == pytest.approx(column["missing_learned"], abs=0.03)
    assert report["categorical"]["city"]["unseen"] == 0


def test_the_statistics_are_those_of_the_distribution_room(loaded, learned, rows_of):
    batch = rows_of(price=1.3)
    sample = loaded.model.distributions.slots[0, :1000].numpy()
    found = learned.compare(batch)["numerical"]["price"]
    assert found["psi"] == pytest.approx(psi(sample, batch.numerical[:, 0]), rel=1e-6)
    assert found["ks"] == pytest.approx(ks_statistic(sample, batch.numerical[:, 0]), abs=0.01)


def test_what_is_an_alarm(learned, rows_of):
    batch = rows_of(price=3.0)
    batch.numerical[::2, 1] = np.nan
    batch.categorical[::3, 0] = np.random.default_rng(0).integers(1, 2**62, len(batch.categorical[::3]))
    report = learned.compare(batch)
    reasons = [alarm.partition(" ")[0] for alarm in report["alarms"]]
    assert "price:" in reasons
    assert any(alarm.startswith("age: 50% missing, 0% in training") for alarm in report["alarms"])
    assert any(alarm.startswith("city: ") and "unseen ids, 0% in training" in alarm for alarm in report["alarms"])
    assert "device:" not in reasons
    assert learned.compare(batch[:400])["alarms"] == []  # too few to tell


@pytest.mark.parametrize("values", [1, 2, 10, 30])
def test_a_few_values_of_a_column_that_is_mostly_missing_are_no_drift(learned, rows_of, values):
    for seed in range(5):
        batch = rows_of(seed=seed)
        batch.numerical[values:, 0] = np.nan
        assert [alarm for alarm in learned.compare(batch)["alarms"] if "PSI" in alarm] == []


def test_a_frozen_model_still_has_its_knots(trained, learned, rows_of):
    loaded = ModelFolder(trained).load_newest()
    loaded.model.freeze()
    frozen = LearnedRows.of(loaded).compare(rows_of())
    assert frozen["alarms"] == []
    shifted = LearnedRows.of(loaded).compare(rows_of(price=3.0))
    assert any(alarm.startswith("price: PSI") for alarm in shifted["alarms"])


@pytest.mark.parametrize("finished", [True, False])
def test_a_method_without_distributions_is_compared_with_what_the_run_kept(tmp_path, finished, rows_of, train_in):
    train_in(tmp_path / "run", embedding="fe", embedding_options={})
    if not finished:
        shutil.rmtree(tmp_path / "run" / "model")
    learned = LearnedRows.of(ModelFolder(tmp_path / "run").load_newest())
    assert learned.compare(rows_of())["alarms"] == []
    assert any(alarm.startswith("price: PSI") for alarm in learned.compare(rows_of(price=3.0))["alarms"])


def test_a_vocabulary_knows_what_it_has_not_seen(tmp_path, rows_of, train_in):
    train_in(tmp_path / "run", categorical_options={"mode": "vocabulary", "min_count": 2})
    learned = LearnedRows.of(ModelFolder(tmp_path / "run").load_newest())
    assert learned.compare(rows_of())["categorical"]["city"]["unseen"] == 0
    batch = rows_of()
    batch.categorical[:, 0] = 12345
    report = learned.compare(batch)
    assert report["categorical"]["city"]["unseen"] == 1
    assert any("city: 100% unseen ids" in alarm for alarm in report["alarms"])


def test_nothing_is_known(tmp_path, rows_of, train_in):
    train_in(tmp_path / "run", embedding="fe", embedding_options={}, evidence=False)
    (tmp_path / "run" / "monitor.json").unlink()
    report = LearnedRows.of(ModelFolder(tmp_path / "run").load_newest()).compare(rows_of())
    assert report["numerical"]["price"]["psi"] is None
    assert report["categorical"]["city"]["unseen"] is None
    assert report["alarms"] == []


class TestWatch:
    @pytest.fixture
    def watch(self, learned):
        made = DriftWatch(SCHEMA, lambda: learned, window=1000, fresh=0)
        yield made
        made.close()

    def test_the_last_rows_are_compared(self, watch, caplog, rows_of):
        assert watch.report()["rows"] == 0
        watch.observe(rows_of(700))
        assert (watch.report()["rows"], watch.report()["alarms"]) == (700, [])
        with caplog.at_level(logging.INFO, "daes.serving"):
            for part in range(10):
                watch.observe(rows_of(130, seed=part, price=5.0))
            report = watch.report()
        assert report["rows"] == 1000
        assert any(alarm.startswith("price: PSI") for alarm in report["alarms"])
        assert "differ from those learned from: price: PSI" in caplog.text
        watch.observe(rows_of(5000))
        assert watch.report()["alarms"] == []

    def test_a_full_window_is_compared_by_itself(self, learned, rows_of):
        watch = DriftWatch(SCHEMA, lambda: learned, window=600, fresh=3600)
        watch.observe(rows_of(601, price=5.0))
        end = time.monotonic() + 20
        while not watch._report.get("alarms") and time.monotonic() < end:
            time.sleep(0.01)
        assert watch._report["alarms"]
        watch.close()

    def test_rows_in_a_ring(self, watch, rows_of):
        batch = rows_of(2500)
        for start, stop in ((0, 300), (300, 990), (990, 1400), (1400, 2400), (2400, 2500)):
            watch.observe(batch[start:stop])
        kept = Batch(watch._numerical, watch._categorical)
        expected = np.sort(batch.numerical[1500:, 1])
        np.testing.assert_array_equal(np.sort(kept.numerical[:, 1]), expected)

"""Comparisons: many trials, logged, continued, in several processes."""

import json
from dataclasses import replace
from importlib import import_module
from statistics import fmean, stdev

import numpy as np
import pytest
import torch

from daes.experiments.compare import compare, run_trials
from daes.experiments.comparison import Comparison
from daes.experiments.log import read_log
from daes.experiments.trial import run_trial
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.offline import OfflineConfig

# The package's `compare` is the function.
compare_module = import_module("daes.experiments.compare")

TRAIN = TrainConfig(batch_size=250, optimizer="adam", learning_rate=0.01)
MODEL = {"dim": 4, "backbone_options": {"hidden": (8,)}}


@pytest.fixture(scope="module")
def data():
    return Dataset.open("adstream:2000")


def small(data, **options):
    defaults = {"methods": ["fe", "daes"], "backbones": ["fnn"], "seeds": 2, "train": TRAIN, "model": MODEL}
    return compare(data, **{**defaults, "sample_rows": 500, **options})


def without_clock(result):
    return replace(result, seconds=0.0, key="")


def test_the_paper_protocol(data):
    offline = OfflineConfig(epochs=2)
    comparison = small(data, methods=["efd", "daes"], protocol="paper", offline=offline, seeds=1)
    assert comparison.measures == ("auc", "logloss")
    for result in comparison.results:
        assert result.error is None
        assert set(result.metrics) == {"auc", "logloss", "valid_auc", "valid_logloss", "epoch", "epochs"}
        assert result.rows == 1600 * result.metrics["epochs"]
        assert result.history["epoch"] == [1.0, 2.0]
    assert "On the test part" in comparison.to_markdown()


def test_the_table_is_made_of_the_trials(data):
    comparison = small(data, methods=["fe", "ple", "daes"], seeds=3, backbones=["fnn", "lr"], model={"dim": 4})
    assert (comparison.methods, comparison.backbones, comparison.seeds) == (
        ("fe", "ple", "daes"),
        ("fnn", "lr"),
        (0, 1, 2),
    )
    assert len(comparison.results) == 18
    trials = {(r.label, r.backbone, r.seed): r.metrics for r in comparison.results}
    for row in comparison.rows():
        for measure, found in row["measures"].items():
            values = [trials[row["label"], row["backbone"], seed][measure] for seed in (0, 1, 2)]
            assert found["values"] == values
            assert found["mean"] == pytest.approx(fmean(values))
            assert found["std"] == pytest.approx(stdev(values))
    test = next(t for t in comparison.best_tests if (t.backbone, t.measure) == ("lr", "logloss"))
    means = {label: fmean(trials[label, "lr", s]["logloss"] for s in (0, 1, 2)) for label in ("fe", "ple", "daes")}
    best = min(("fe", "ple"), key=lambda label: means[label])
    assert (test.subject, test.baseline) == ("daes", best)
    assert test.difference == pytest.approx(means["daes"] - means[best])
    assert len(comparison.tests) == 2 * 2 * 4  # baselines, backbones, measures
    assert [(t.backbone, t.measure) for t in comparison.best_tests] == [
        (b, m) for b in ("fnn", "lr") for m in comparison.measures
    ]
    assert 0 < test.bootstrap <= test.p_value
    curve = comparison.eighths("daes", "lr")
    assert curve == pytest.approx(
        np.mean([r.eighths["auc"] for r in comparison.results if (r.label, r.backbone) == ("daes", "lr")], axis=0)
    )
    aucs = {b: {label: fmean(trials[label, b, s]["auc"] for s in (0, 1, 2)) for label in means} for b in ("fnn", "lr")}
    for label, rank in comparison.ranks("auc").items():
        places = [1 + sum(other > aucs[b][label] for other in aucs[b].values()) for b in ("fnn", "lr")]
        assert rank == pytest.approx(fmean(places))


def test_a_comparison_survives_json(data, tmp_path):
    comparison = small(data, out=tmp_path)
    stored = json.loads((tmp_path / "comparison.json").read_text())
    assert stored == json.loads(comparison.to_json())
    again = Comparison.from_dict(stored)
    assert again.to_dict() == comparison.to_dict()
    assert again.to_markdown() == comparison.to_markdown()
    assert again.tests == comparison.tests
    assert "AUC by eighth of the stream, FNN" in comparison.to_markdown()
    assert stored["data"]["what"] == "adstream:2000"
    assert stored["environment"]["packages"]["torch"]
    with pytest.raises(ValueError, match=r"daes\.comparison"):
        Comparison.from_dict({"format": "something"})


def test_finished_trials_are_not_run_again(data, tmp_path, monkeypatch):
    first = small(data, out=tmp_path)
    ran = []

    def counted(trial, shared, progress=None):
        ran.append((trial.label, trial.seed))
        return run_trial(trial, shared, progress)

    monkeypatch.setattr(compare_module, "run_trial", counted)
    again = small(data, out=tmp_path)
    assert ran == []
    assert [without_clock(r) for r in again.results] == [without_clock(r) for r in first.results]
    assert again.tests == first.tests
    assert len(list((tmp_path / "predictions").iterdir())) == 4
    more = small(data, out=tmp_path, seeds=3, methods=["fe", "daes", "ple"])
    assert sorted(ran) == [("daes", 2), ("fe", 2), ("ple", 0), ("ple", 1), ("ple", 2)]
    assert len(more.results) == 9
    ran.clear()
    small(data, out=tmp_path, train=replace(TRAIN, learning_rate=0.02), seeds=1)
    small(data.head(1500), out=tmp_path, seeds=1)
    small(Dataset.open("adstream:2100"), out=tmp_path, seeds=1)
    small(data, out=tmp_path, seeds=1, model={**MODEL, "l2": 1e-6})
    assert len(ran) == 8
    ran.clear()
    small(data, out=tmp_path, seeds=1, methods={"my fe": {"method": "fe"}})
    assert ran == []


def test_a_line_that_was_cut_short_is_left_out_and_written_again(data, tmp_path):
    small(data, out=tmp_path)
    path = tmp_path / "results.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:3]) + "\n" + lines[3][: len(lines[3]) // 2])
    assert len(read_log(path)) == 3
    small(data, out=tmp_path)
    assert len(read_log(path)) == 4


@pytest.mark.parametrize("left", [0, 20, -4])
def test_a_result_with_damaged_predictions_is_computed_again(data, tmp_path, left):
    first = small(data, seeds=1, out=tmp_path)
    paths = sorted((tmp_path / "predictions").iterdir())
    whole = [path.read_bytes() for path in paths]
    paths[0].write_bytes(whole[0][:left])
    with pytest.warns(UserWarning, match=f"{paths[0]} is damaged .*: its result is computed again"):
        again = small(data, seeds=1, out=tmp_path)
    assert [path.read_bytes() for path in paths] == whole
    assert [row["measures"] for row in again.rows()] == [row["measures"] for row in first.rows()]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3


def test_a_trial_that_fails_is_reported_and_tried_again(data, tmp_path, monkeypatch):
    def fails(trial, shared, progress=None):
        if trial.label == "fe" and trial.seed == 1:
            raise RuntimeError("the disk\n  is on fire")
        return run_trial(trial, shared, progress)

    monkeypatch.setattr(compare_module, "run_trial", fails)
    comparison = small(data, out=tmp_path)
    assert [(r.label, r.seed, r.error) for r in comparison.failures] == [("fe", 1, "RuntimeError: the disk is on fire")]
    assert "Traceback" in comparison.failures[0].traceback
    assert len(comparison.summary("fe", "fnn", "auc").values) == 1
    assert len(comparison.summary("daes", "fnn", "auc").values) == 2
    assert "Failed: fe on fnn, seed 1: RuntimeError" in comparison.to_markdown()
    stored = json.loads((tmp_path / "comparison.json").read_text())
    assert stored["failures"] == [
        {"label": "fe", "backbone": "fnn", "seed": 1, "error": "RuntimeError: the disk is on fire"}
    ]
    monkeypatch.undo()
    assert small(data, out=tmp_path).failures == []


def test_processes_give_the_same_results(data, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        events = []
        alone = small(data)
        together = small(data, jobs=2, out=tmp_path, progress=events.append)
    finally:
        torch.set_num_threads(threads)
    assert [without_clock(r) for r in together.results] == [without_clock(r) for r in alone.results]
    assert [event.trials_done for event in events if event.result] == [1, 2, 3, 4]
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 4


def test_options_go_to_the_methods_that_have_them(data):
    comparison = small(data, seeds=1, model={**MODEL, "embedding_options": {"knots": 12}})
    assert comparison.failures == []
    settings = {r.label: r.settings["model"]["embedding_options"] for r in comparison.results}
    assert settings == {"fe": {"input": "score"}, "daes": {"knots": 12}}
    with pytest.raises(ValueError, match="no method of fe has an option 'knots'"):
        small(data, methods=["fe"], model={"embedding_options": {"knots": 1}})
    variants = {"M=5": {"method": "daes", "num_meta": 5}, "M=9": {"method": "daes", "num_meta": 9}}
    found = small(data, methods=variants, seeds=1)
    assert [r.settings["model"]["embedding_options"] for r in found.results] == [{"num_meta": 5}, {"num_meta": 9}]
    assert found.results[0].parameters < found.results[1].parameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["fe", "deas"]}, r"methods must be among efd, .*, got 'deas' \(did you mean 'daes'\?\)"),
        ({"methods": []}, "methods must name at least one"),
        ({"methods": ["fe", "fe"]}, "methods must name each one once; 'fe' occurs twice"),
        ({"backbones": ["fnm"]}, "backbones must be among fnn"),
        ({"seeds": 0}, "seeds must be a positive number or distinct seeds"),
        ({"seeds": [1, 1]}, "seeds must be a positive number or distinct seeds"),
        ({"protocol": "papers"}, "protocol must be among stream, paper"),
        ({"jobs": 0}, "jobs must be positive"),
        ({"subject": "ple"}, "subject must be among fe, daes"),
    ],
)
def test_arguments_are_checked(data, change, message):
    with pytest.raises(ValueError, match=message):
        small(data, **change)


def test_one_writer_at_a_time(data, tmp_path):
    from daes.storage.lock import LockHeldError, WriterLock

    lock = WriterLock(tmp_path / "lock")
    lock.acquire()
    with pytest.raises(LockHeldError, match="one writer at a time"):
        run_trials([], data, out=tmp_path)
    lock.release()
    assert run_trials([], data, out=tmp_path) == []


def test_methods_get_the_inputs_of_their_authors_unless_told_otherwise(data):
    found = {}
    for authors in (True, False):
        comparison = small(
            data, methods={"fe": {}, "raw": {"method": "fe", "input": "value"}}, authors_inputs=authors, seeds=1
        )
        found[authors] = {
            r.label: (r.settings["model"]["embedding_options"], r.metrics["auc"]) for r in comparison.results
        }
    assert found[True]["fe"][0] == {"input": "score"}
    assert found[False]["fe"][0] == {}
    assert found[True]["raw"] == found[False]["raw"]
    assert found[False]["fe"][1] == found[True]["raw"][1] != found[True]["fe"][1]


def test_a_rival_that_fails_fails_once(data):
    comparison = compare(
        data, methods={"ftrl": {"alpha": -1.0}}, backbones=["fnn", "lr"], seeds=2, train=TrainConfig(batch_size=500)
    )
    assert [(failure.label, failure.backbone) for failure in comparison.failures] == [("ftrl", "fnn")]
    assert "AUC by eighth" not in comparison.to_markdown()

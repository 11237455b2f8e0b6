import json
import os
import signal
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from multiprocessing import active_children
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import log_loss, roc_auc_score

from daes.experiments import trial as trial_module
from daes.experiments.compare import compare, run_trials
from daes.experiments.comparison import Comparison
from daes.experiments.log import read_log
from daes.experiments.predictions import Predictions
from daes.experiments.trial import Trial, TrialResult, run_trial
from daes.experiments.workers import WorkerExit, run_tasks
from daes.formatting import fixed
from daes.model import CTRModel
from daes.stream.dataset import Dataset
from daes.stream.source import BatchSource
from daes.training.config import TrainConfig
from daes.training.offline import OfflineConfig
from daes.training.trainer import StreamTrainer

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


def test_a_stream_trial_is_judged_on_all_rows_and_on_the_second_half(data):
    scores = []
    trial = Trial("daes", "daes", "fnn", 3, train=TRAIN, model=MODEL, sample_rows=500)
    result = run_trial(trial, data)
    rows = data.source.batch(0, 2000, data.schema)
    torch.manual_seed(3)
    from daes.model import CTRModel

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


def made_up(values, methods=None, rows=2000):
    """A comparison of one backbone whose labels and seeds have scores of about these AUCs."""
    rng = np.random.default_rng(0)
    labels = rng.random(rows) < 0.5
    results = []
    for label, seeds in values.items():
        for seed, auc in enumerate(seeds):
            logits = ((labels - 0.5) * norm.ppf(auc) * 2**0.5 + rng.normal(size=rows)).astype(np.float32)
            results.append(
                TrialResult(
                    label,
                    (methods or {}).get(label, label),
                    "fnn",
                    seed,
                    "paper",
                    metrics={"auc": auc, "logloss": 1 - auc},
                    predictions=partial(Predictions, logits, labels),
                )
            )
    count = max(map(len, values.values()))
    return Comparison("paper", tuple(values), ("fnn",), tuple(range(count)), tuple(results)).tested()


def test_who_is_tested_against_whom():
    table = {"efd": [0.6, 0.61], "ple": [0.7, 0.71], "daes-gate": [0.74, 0.75], "daes": [0.72, 0.73]}
    assert made_up(table).default_subject() == ("daes", ("efd", "ple"))
    assert {test.baseline for test in made_up(table).tests} == {"efd", "ple"}
    assert {test.baseline for test in made_up(table).best_tests} == {"ple"}
    del table["daes"]
    assert made_up(table).default_subject() == ("daes-gate", ("efd", "ple"))
    del table["daes-gate"]
    assert made_up(table).default_subject() == ("ple", ("efd",))
    variants = {"M=10": [0.7, 0.71], "M=20": [0.72, 0.73], "efd": [0.5, 0.5]}
    named = made_up(variants, {"M=10": "daes", "M=20": "daes"})
    assert named.default_subject() == ("M=10", ("efd",))
    assert replace(named, subject="efd").default_subject() == ("efd", ("M=10", "M=20"))


def test_an_undefined_eighth_is_not_the_best():
    curves = {"fe": [float("nan"), float("nan"), 0.6], "ple": [float("nan"), 0.7, 0.65]}
    results = [TrialResult(label, label, "lr", 0, "stream", eighths={"auc": curve}) for label, curve in curves.items()]
    comparison = Comparison("stream", ("fe", "ple", "efd"), ("lr",), (0,), tuple(results))
    cells = [[(cell.content, cell.strong) for cell in row[1:]] for row in comparison.eighths_tables()[0].rows]
    assert cells == [
        [("–", False), ("–", False), ("0.6000", False)],
        [("–", False), ("0.7000", True), ("0.6500", True)],
        [("–", False)] * 3,
    ]
    assert replace(comparison, results=()).eighths_tables() == []


def test_what_is_printed_marks_the_best_and_the_significant():
    comparison = made_up({"efd": [0.60, 0.61, 0.60], "ple": [0.70, 0.71, 0.70], "daes": [0.75, 0.76, 0.75]})
    text = comparison.to_markdown()
    assert "| method | FNN AUC | FNN LogLoss | rank |" in text
    assert "| efd | 0.6033 ± 0.0058 | 0.3967 ± 0.0058 | 3.00 |" in text
    assert "| daes | **0.7533 ± 0.0058 †** | **0.2467 ± 0.0058 †** | **1.00** |" in text
    shown = fixed(comparison.best_tests[0].difference, sign=True)
    assert f"| FNN | AUC | ple | **{shown}** |" in text
    assert (
        "† better than the best baseline: paired DeLong test (AUC) and bootstrap over 64 blocks of consecutive rows, "
        "p < 0.05 in each after Holm's correction for 4 comparisons." in text
    )
    worse = made_up({"ple": [0.70, 0.71, 0.70], "daes": [0.60, 0.61, 0.60]}).to_markdown()
    assert " †" not in worse.replace("† better", "")
    chance = made_up({"ple": [0.700], "daes": [0.7001]}, rows=200)
    assert " †" not in chance.to_markdown().replace("† better", "")
    few = made_up({"ple": [0.5], "daes": [0.6]}, rows=60)
    assert few.tests == ()
    assert "Nothing is tested: a test needs the scores of 64 rows or more" in few.to_markdown()
    alone = made_up({"daes": [0.6]})
    assert "tested" not in alone.to_markdown()
    assert alone.tests == ()
    assert "| daes | **0.6000** | **0.4000** | **1.00** |" in alone.to_markdown()
    single = made_up({"ple": [0.5], "daes": [0.6]})
    assert all(test.significant for test in single.tests)
    from rich.console import Console

    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(comparison)
    shown = console.export_text()
    assert "on the test part" in shown
    assert "0.7533 ± 0.0058 †" in shown


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


def test_a_process_that_dies_takes_no_other_with_it(tmp_path, monkeypatch):
    (tmp_path / "tasks_for_test.py").write_text(
        "import os, signal, sys\n"
        "def task(shared, item, note):\n"
        "    note(('begun', item))\n"
        "    if item == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    if item == 2: sys.exit(7)\n"
        "    return shared + item\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import tasks_for_test

    notes = []
    found = dict(run_tasks(tasks_for_test.task, 100, range(4), jobs=2, on_note=lambda item, note: notes.append(note)))
    assert (found[0], found[3]) == (100, 103)
    assert found[1] == WorkerExit(-signal.SIGKILL)
    assert str(found[1]) == "its process was ended by SIGKILL, as happens when memory runs out"
    assert str(found[2]) == "its process ended with exit code 7"
    assert sorted(notes) == [("begun", item) for item in range(4)]


def test_a_process_that_dies_between_two_tasks_takes_no_other_with_it(tmp_path, monkeypatch):
    (tmp_path / "late_task_for_test.py").write_text(
        "import os, threading, time\n"
        "def wait(path):\n"
        "    while not path.exists(): time.sleep(0.01)\n"
        "def task(shared, item, note):\n"
        "    if item == 0: threading.Thread(target=lambda: (wait(shared), os._exit(7)), daemon=True).start()\n"
        "    else: wait(shared)\n"
        "    return item\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import late_task_for_test

    found, others = {}, set(active_children())
    for item, result in run_tasks(late_task_for_test.task, tmp_path / "now", range(4), jobs=2):
        found[item] = result
        if item == 0:
            (tmp_path / "now").touch()
            while len(set(active_children()) - others) > 1:  # until the first process is gone
                time.sleep(0.01)
    assert found == {0: 0, 1: 1, 2: WorkerExit(7), 3: 3}


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


def test_a_rival_that_fails_fails_once(data):
    comparison = compare(
        data, methods={"ftrl": {"alpha": -1.0}}, backbones=["fnn", "lr"], seeds=2, train=TrainConfig(batch_size=500)
    )
    assert [(failure.label, failure.backbone) for failure in comparison.failures] == [("ftrl", "fnn")]
    assert "AUC by eighth" not in comparison.to_markdown()

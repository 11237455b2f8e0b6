"""The table of a comparison: who is tested against whom, what is marked."""

import os
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.stats import norm

from daes.experiments.comparison import Comparison
from daes.experiments.predictions import Predictions
from daes.experiments.trial import TrialResult
from daes.formatting import fixed


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

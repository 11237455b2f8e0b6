"""Tables of a comparison, and its outcome in words."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from daes.experiments.scores import higher_is_better
from daes.experiments.trial import TrialResult
from daes.formatting import compact, count, fixed, p_equals, p_value
from daes.report.comparison import CEILING, Compared
from daes.table import Cell, Table


def result_table(compared: Compared, backbone: str) -> Table:
    """Every method on one backbone, best first; the best of each column is strong."""
    rows: list[list[object]] = []
    for label in compared.order(backbone, compared.headline[0]):
        trials = compared.table.trials(label, backbone)
        speed = np.mean([trial.rows_per_second for trial in trials]) if trials else None
        values = [compared.table.scores.cell(label, backbone, measure) for measure in compared.titles]
        rows.append([_label(compared, label), *values, count(speed), compact(trials[0].parameters if trials else None)])
    if compared.ceiling:
        known = [fixed(compared.ceiling.get(measure)) for measure in compared.titles]
        rows.append([CEILING, *known, "", ""])
    return Table(("method", *compared.titles.values(), "rows per second", "parameters"), rows)


def rank_table(compared: Compared) -> Table:
    """The average rank of each method over the backbones, best first."""
    measures = [measure for measure in compared.titles if higher_is_better(measure)]
    ranks = {measure: compared.table.ranks(measure) for measure in measures}
    best = {measure: min(found.values()) for measure, found in ranks.items()}
    rows = [
        [
            _label(compared, label),
            *(Cell(fixed(ranks[m][label], 2), strong=ranks[m][label] == best[m]) for m in measures),
        ]
        for label in sorted(compared.table.methods, key=lambda label: ranks[measures[0]][label])
    ]
    return Table(("method", *(f"rank by {compared.titles[measure]}" for measure in measures)), rows)


def eighths_table(compared: Compared, backbone: str) -> Table | None:
    """AUC of every method on each eighth of the stream; None if no trial has it."""
    table = compared.table.eighths_table(backbone)
    if len(table.head) == 1:
        return None
    return replace(table, rows=[[_label(compared, str(label)), *curve] for label, *curve in table.rows])


def _label(compared: Compared, label: str) -> Cell:
    return Cell(label, colour=compared.style(label).colour)


def significance_table(compared: Compared) -> Table | None:
    """The subject against every baseline, tested on the rows; None if nothing was tested."""
    measures = list(compared.titles)
    tests = sorted(compared.table.tests, key=lambda test: measures.index(test.measure))
    if not tests:
        return None
    rows = [
        (
            test.backbone,
            compared.titles[test.measure],
            Cell(test.baseline, strong=test in compared.table.best_tests),
            *test.cells(),
            p_value(test.p_value),
            ("better" if test.better else "worse") if test.significant else "may be chance",
        )
        for test in tests
    ]
    difference = f"{compared.subject} less baseline"
    head = ("backbone", "measure", "baseline", difference, "95 %", "DeLong p", "bootstrap p", "p, Holm", "")
    return Table(head, rows, left=frozenset({0, 1, 2, 8}))


def verdict(compared: Compared) -> str:
    """The best method on each backbone, the rank of the subject, and whether the difference may be chance."""
    several = len(compared.table.backbones) > 1
    sentences = {backbone: _first(compared, backbone) for backbone in compared.table.backbones}
    said = [f"On {name}, {sentence}" if several else sentence for name, sentence in sentences.items() if sentence]
    if not said:
        return ""
    where = {"stream": "Over the second half of the stream: ", "paper": "On the test part: "}
    return where[compared.table.protocol] + " ".join(said)


def _first(compared: Compared, backbone: str) -> str:
    auc, logloss = compared.headline
    best, least = compared.table.scores.best(backbone, auc), compared.table.scores.best(backbone, logloss)
    if best is None or least is None:
        return ""
    loss = f"the lowest LogLoss, {fixed(compared.mean(least, backbone, logloss))}"
    sentence = f"{best} has the highest AUC, {fixed(compared.mean(best, backbone, auc))}, and "
    sentence += loss if least == best else f"{least} {loss}"
    subject, order = compared.subject, compared.order(backbone, auc)
    if subject is not None and subject != best:
        gap = compared.mean(best, backbone, auc) - compared.mean(subject, backbone, auc)
        if np.isfinite(gap):
            sentence += f"; {subject} is number {1 + order.index(subject)} of {len(order)} by AUC, {fixed(gap)} below"
    return f"{sentence}. {_chance(compared, backbone, auc)}".strip()


def _chance(compared: Compared, backbone: str, measure: str) -> str:
    tests = [test for test in compared.table.best_tests if (test.backbone, test.measure) == (backbone, measure)]
    if not tests:
        return ""
    test = tests[0]
    is_it = "is significant" if test.significant else "may be chance"
    return (
        f"The difference in AUC between {test.subject} and the best baseline, {test.baseline}, "
        f"{fixed(test.difference, sign=True)}, {is_it} ({p_equals(test.p_value)} by DeLong's test "
        "and the block bootstrap over rows, the larger of both after Holm's correction)."
    )


def failure_table(failures: Sequence[TrialResult]) -> Table:
    """The trials that failed, and why."""
    rows = [(trial.label, trial.backbone, str(trial.seed), trial.error or "") for trial in failures]
    return Table(("method", "backbone", "seed", "reason"), rows, left=frozenset({0, 1, 3}))

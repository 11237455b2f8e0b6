"""The sections of a comparison's page, with its tables and its outcome in words."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from daes.experiments.method_tests import ROW_TESTS
from daes.experiments.scores import higher_is_better
from daes.experiments.significance import LEVEL
from daes.formatting import compact, count, duration, fixed, p_equals, p_value
from daes.report.comparison import CEILING, Compared
from daes.report.comparison_figures import dot_figure, epoch_figures, stream_figures
from daes.report.content import Block, Heading, Paragraph, Section, drawn, settings
from daes.report.learned import read_findings
from daes.report.methods import explained
from daes.report.run_record import read_run
from daes.report.run_sections import notes, stream_sections
from daes.table import Cell, Table


def comparison_sections(compared: Compared) -> list[Section]:
    """All sections of a comparison, in order."""
    curves = "Along the stream" if compared.table.protocol == "stream" else "Epoch by epoch"
    sections = [
        Section("result", "Result", _result(compared)),
        Section("curves", curves, _curves(compared)),
    ]
    if compared.run_dir is not None:
        run = read_run(compared.run_dir)
        sections += stream_sections(run, read_findings(compared.run_dir / "model", run))
    about = compared.table.about
    setup = [
        *notes(about.get("data", {}).get("notes", [])),
        *settings("Configuration", compared.common_settings()),
        *settings("Environment", about.get("environment", {})),
    ]
    methods = explained((result.method for result in compared.table.finished), compared.table.backbones)
    return [
        *sections,
        *([Section("methods", "Methods", methods)] if methods else []),
        Section("setup", "Configuration", setup),
    ]


def best_facts(compared: Compared, group: str = "") -> list[tuple[str, str]]:
    """The best method and its score, by AUC and by LogLoss, on the first backbone."""
    backbone = compared.table.backbones[0]
    titles = ("highest AUC", "lowest LogLoss") if group else ("Highest AUC", "Lowest LogLoss")
    return [
        (f"{group}, {title}: {best}" if group else f"{title}: {best}", fixed(compared.mean(best, backbone, measure)))
        for measure, title in zip(compared.headline, titles, strict=True)
        if (best := compared.table.scores.best(backbone, measure)) is not None
    ]


def work_facts(comparisons: Sequence[Compared]) -> list[tuple[str, str]]:
    """The number of trained models and their total time; one whose result stands in several columns counts once."""
    trained = {result.key: result.seconds for compared in comparisons for result in compared.table.finished}
    return [("Models trained", str(len(trained))), ("Time, added up", duration(sum(trained.values())))]


_TESTS = (
    f"Each baseline (the best of its column in bold) against the method, on the same rows: {ROW_TESTS}. 95 % is the "
    "interval of the block bootstrap. The last p is the larger of both, after Holm's correction over all lines of this "
    f"table; it is below {LEVEL} for what is called better or worse. The tables above show the spread over seeds."
)


def _result(compared: Compared) -> list[Block]:
    blocks: list[Block] = [Paragraph(verdict(compared) or "No trial has finished.", "said")]
    several = len(compared.table.backbones) > 1
    for backbone in compared.table.backbones:
        blocks += [*([Heading(backbone)] if several else []), result_table(compared, backbone)]
    if several:
        blocks += [Heading("Average rank over the backbones"), rank_table(compared)]
    dots = dot_figure(compared)
    if dots is not None:
        blocks.append(dots)
    tests = significance_table(compared)
    if tests is not None:
        blocks += [Heading("Tests"), Paragraph(_TESTS), tests]
    failures = [(r.label, r.backbone, str(r.seed), r.error or "") for r in compared.table.failures]
    if failures:
        table = Table(("method", "backbone", "seed", "reason"), failures, left=frozenset({0, 1, 3}))
        blocks += [Heading("Failures"), table]
    return blocks


def _curves(compared: Compared) -> list[Block]:
    if compared.table.protocol != "stream":
        return drawn(epoch_figures(compared), "No history was kept.")
    blocks = drawn(stream_figures(compared), "No history was kept.")
    for table in compared.table.eighths_tables():
        blocks.append(replace(table, rows=[[_label(compared, str(label)), *curve] for label, *curve in table.rows]))
    return blocks


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


def _label(compared: Compared, label: str) -> Cell:
    return Cell(label, colour=compared.line(label).colour)


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
    parts = [f"On {name}, {sentence}" if several else sentence for name, sentence in sentences.items() if sentence]
    if not parts:
        return ""
    where = {"stream": "Over the second half of the stream: ", "paper": "On the test part: "}
    return where[compared.table.protocol] + " ".join(parts)


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

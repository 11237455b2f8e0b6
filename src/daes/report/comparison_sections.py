"""The sections of a comparison's page."""

from collections.abc import Sequence

from daes.experiments.method_tests import ROW_TESTS
from daes.experiments.significance import LEVEL
from daes.formatting import duration, fixed
from daes.report.comparison import Compared
from daes.report.comparison_figures import dot_figure, epoch_figures, stream_figures
from daes.report.comparison_tables import (
    eighths_table,
    failure_table,
    rank_table,
    result_table,
    significance_table,
    verdict,
)
from daes.report.content import Block, Heading, Paragraph, Section, drawn, settings
from daes.report.learned import read_findings
from daes.report.methods import compared_methods
from daes.report.run_record import read_run
from daes.report.run_sections import notes, stream_sections


def comparison_sections(compared: Compared, group: str = "") -> list[Section]:
    """All sections of a comparison, in order; `group` is its name on a page with several."""
    curves = "Along the stream" if compared.table.protocol == "stream" else "Epoch by epoch"
    sections = [
        Section("result", "Result", _result(compared), group),
        Section("curves", curves, _curves(compared), group),
    ]
    if compared.run_dir is not None:
        run = read_run(compared.run_dir)
        sections += stream_sections(run, read_findings(compared.run_dir / "model", run), group)
    about = compared.table.about
    setup = [
        *notes(about.get("data", {}).get("notes", [])),
        *settings("Configuration", compared.common_settings()),
        *settings("Environment", about.get("environment", {})),
    ]
    methods = compared_methods((result.method for result in compared.table.finished), compared.table.backbones)
    return [
        *sections,
        *([Section("methods", "Methods", methods, group)] if methods else []),
        Section("setup", "Configuration", setup, group),
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
    """The number of trained models and their total time."""
    results = [result for compared in comparisons for result in compared.table.finished]
    seconds = sum(result.seconds for result in results)
    return [("Models trained", str(len(results))), ("Time, added up", duration(seconds))]


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
    if compared.table.failures:
        blocks += [Heading("Failures"), failure_table(compared.table.failures)]
    return blocks


def _curves(compared: Compared) -> list[Block]:
    if compared.table.protocol != "stream":
        return drawn(epoch_figures(compared), "No history was kept.")
    tables = [eighths_table(compared, backbone) for backbone in compared.table.backbones]
    known = [table for table in tables if table is not None]
    return [*drawn(stream_figures(compared), "No history was kept."), *known]

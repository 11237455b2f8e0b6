"""The sections of a comparison's page."""

import re
from collections.abc import Sequence

from daes.formatting import duration, fixed
from daes.report.comparison import Compared
from daes.report.comparison_figures import dot_figure, epoch_figures, stream_figures
from daes.report.comparison_tables import failure_table, rank_table, result_table, significance_table, verdict
from daes.report.document import Section, stack
from daes.report.folder import read_run
from daes.report.learned import look_at_model
from daes.report.markup import paragraph, table_html, text
from daes.report.run_sections import stream_sections
from daes.report.setup import notes, settings


def comparison_sections(compared: Compared, group: str = "") -> list[Section]:
    """All that there is to say about a comparison, in order; `group` names it where a page has several."""
    ids = re.sub(r"\W+", "-", f"{group}-") if group else ""
    curves = "Along the stream" if compared.table.protocol == "stream" else "Epoch by epoch"
    sections = [
        Section(f"{ids}result", "Result", _result(compared, ids), group),
        Section(f"{ids}curves", curves, _curves(compared, ids), group),
    ]
    if compared.run_dir is not None:
        run = read_run(compared.run_dir)
        sections += stream_sections(run, look_at_model(compared.run_dir / "model", run), ids, group)
    about = compared.table.about
    said = notes(about.get("data", {}).get("notes", []))
    said += settings("Configuration", compared.common_settings()) + settings(
        "Environment", about.get("environment", {})
    )
    return [*sections, Section(f"{ids}setup", "Configuration", said, group)]


def best_facts(compared: Compared, group: str = "") -> list[tuple[str, str]]:
    """The best method and its score, by AUC and by LogLoss, on the first backbone."""
    backbone = compared.table.backbones[0]
    found = []
    for measure, title in zip(
        compared.headline,
        ("highest AUC" if group else "Highest AUC", "lowest LogLoss" if group else "Lowest LogLoss"),
        strict=True,
    ):
        best = compared.best(backbone, measure)
        if best is not None:
            found.append((f"{group}{title}: {best}", fixed(compared.mean(best, backbone, measure))))
    return found


def work_facts(comparisons: Sequence[Compared]) -> list[tuple[str, str]]:
    """How much was computed."""
    results = [result for compared in comparisons for result in compared.results]
    seconds = sum(result.seconds for result in results)
    return [("Models trained", str(len(results))), ("Time, added up", duration(seconds))]


def _result(compared: Compared, ids: str) -> str:
    parts = [paragraph(verdict(compared) or "No model was finished.", "said")]
    several = len(compared.table.backbones) > 1
    for backbone in compared.table.backbones:
        parts.append((f"<h3>{text(backbone)}</h3>" if several else "") + table_html(result_table(compared, backbone)))
    if several:
        parts += ["<h3>Average rank over the backbones</h3>", table_html(rank_table(compared))]
    parts.append(stack([dot_figure(compared)], ids))
    tests = significance_table(compared)
    if tests is not None and len(compared.table.seeds) > 1:
        parts += [
            "<h3>Tests</h3>",
            paragraph("Two-tailed unpaired t-test against the best baseline."),
            table_html(tests),
        ]
    if compared.table.failures:
        parts += ["<h3>Failures</h3>", table_html(failure_table(compared.table.failures))]
    return "\n".join(part for part in parts if part)


def _curves(compared: Compared, ids: str) -> str:
    make = stream_figures if compared.table.protocol == "stream" else epoch_figures
    return stack(make(compared), ids) or paragraph("No history was kept.")

"""Writes the page of a run or of comparisons: a single HTML file that opens offline."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from daes.report.comparison import Compared, compared_in
from daes.report.comparison_sections import best_facts, comparison_sections, work_facts
from daes.report.content import Page
from daes.report.learned import read_findings
from daes.report.rendering import render
from daes.report.run_record import read_run
from daes.report.run_sections import run_facts, run_sections
from daes.storage.durable import write_text


def write_report(folder: str | Path) -> Path:
    """Write the page of a folder of `daes train` or `daes compare`, and return its path.

    The page says what the folder lacks (no monitor, no knots, no numerical columns, no model). A folder without a run
    or a comparison is an error.
    """
    folder = Path(folder)
    path = folder / "report.html"
    if (folder / "comparison.json").is_file() and not (folder / "config.json").is_file():
        compared = compared_in(folder)
        return write_comparisons(path, f"Comparison on {compared.name}", compared.lead, [compared])
    run = read_run(folder)
    sections = run_sections(run, read_findings(folder / "model", run))
    write_text(path, render(Page(run.title, run.lead, sections, run_facts(run))))
    return path


def write_comparisons(path: str | Path, title: str, lead: str, comparisons: Sequence[Compared]) -> Path:
    """Write one page with several comparisons."""
    path = Path(path)
    groups = ["" if len(comparisons) == 1 else compared.name for compared in comparisons]
    pairs = list(zip(comparisons, groups, strict=True))
    sections = [replace(section, group=group) for compared, group in pairs for section in comparison_sections(compared)]
    best = [fact for compared, group in pairs for fact in best_facts(compared, group)]
    write_text(path, render(Page(title, lead, sections, [*best, *work_facts(comparisons)])))
    return path

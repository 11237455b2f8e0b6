"""Writes the page of a run or a comparison: a single HTML file that opens offline."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from daes.report.comparison import Compared, read_comparison
from daes.report.comparison_sections import best_facts, comparison_sections, work_facts
from daes.report.content import Page
from daes.report.learned import read_findings
from daes.report.rendering import render
from daes.report.run_record import read_run
from daes.report.run_sections import run_facts, run_sections
from daes.storage.durable import write_text

REPORT = "report.html"


def write_report(run_dir: str | Path) -> Path:
    """Write the page of what `daes train` or `daes compare` left in a folder, and return where it is.

    The page says what the folder lacks (no monitor, no knots, no numerical columns, no model). A folder without
    a run or a comparison is an error.
    """
    folder = Path(run_dir)
    if (folder / "comparison.json").is_file() and not (folder / "config.json").is_file():
        return write_comparison(folder)
    run = read_run(folder)
    path = folder / REPORT
    learned = read_findings(folder / "model", run)
    write_text(path, render(Page(run.title, run.lead, run_sections(run, learned), run_facts(run))))
    return path


def write_comparison(
    compare_dir: str | Path, *, run_dir: str | Path | None = None, ceiling: Mapping[str, float] | None = None
) -> Path:
    """Write the page of what `daes compare` left in a folder, and return where it is.

    Args:
        compare_dir: the folder.
        run_dir: a run on the same stream, whose drift, knots and learned encodings the page also shows.
        ceiling: what the true probabilities score, by measure (`auc`, `logloss`, `half_auc`, `half_logloss`).
    """
    compared = compared_in(compare_dir, run_dir=run_dir, ceiling=ceiling)
    path = Path(compare_dir) / REPORT
    facts = [*best_facts(compared), *work_facts([compared])]
    write_text(
        path, render(Page(f"Comparison on {compared.name}", compared.lead, comparison_sections(compared), facts))
    )
    return path


def write_comparisons(path: str | Path, title: str, lead: str, comparisons: Sequence[Compared]) -> Path:
    """Write one page of several comparisons, one after the other."""
    path = Path(path)
    sections = [section for compared in comparisons for section in comparison_sections(compared, compared.name)]
    best = [fact for compared in comparisons for fact in best_facts(compared, f"{compared.name}, ")]
    write_text(path, render(Page(title, lead, sections, [*best, *work_facts(comparisons)])))
    return path


def compared_in(
    compare_dir: str | Path, *, run_dir: str | Path | None = None, ceiling: Mapping[str, float] | None = None
) -> Compared:
    """What a folder of `daes compare` holds, with a run and a ceiling that belong to it."""
    table = read_comparison(Path(compare_dir))
    return Compared(table, dict(ceiling or {}), None if run_dir is None else Path(run_dir))

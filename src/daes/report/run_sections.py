"""The sections of a run's page."""

from collections.abc import Sequence
from math import isfinite

from daes.formatting import compact, count, duration, fixed, percent
from daes.report.content import Block, Details, Notes, Paragraph, Ranking, Section, drawn, settings
from daes.report.distribution_figures import drift_figures, knot_figures, missing_figure
from daes.report.evidence import evidence_figure
from daes.report.features import MOST_LISTED, ColumnSummary, column_summaries
from daes.report.figures import Figure
from daes.report.learned import ModelFindings
from daes.report.learned_figures import encoding_figures, modulation_figure
from daes.report.methods import run_methods
from daes.report.performance_figures import calibration_figure, rate_figure, score_figures, throughput_figure
from daes.report.run_record import RunRecord
from daes.report.summary import summary
from daes.table import Table

_LISTED = 50


def run_sections(run: RunRecord, findings: ModelFindings) -> list[Section]:
    """All sections of a run, in order."""
    too_short = "There are too few records to show the speed."
    columns = column_summaries(run, findings.learned)
    return [
        Section("summary", "In short", summary(run, columns)),
        Section("features", "Columns", _features(run, columns)),
        Section("scores", "Scores", drawn(score_figures(run), "No score was recorded.", side_by_side=True)),
        Section("calibration", "Calibration", _calibration(run)),
        Section("categories", "Categories", category_blocks(run, columns)),
        *stream_sections(run, findings),
        Section("throughput", "Throughput", drawn([throughput_figure(run)], too_short)),
        Section("methods", "Methods", run_methods(run)),
        Section("setup", "Configuration", _setup(run)),
        Section("notes", "Notes", [*notes(run.notes), *_bad_rows(*run.bad_rows), *_bad_batches(run.bad_batches)]),
    ]


def stream_sections(run: RunRecord, findings: ModelFindings) -> list[Section]:
    """The stream and what the method learned from it."""
    evidence = _evidence(findings)
    return [
        *([Section("evidence", "What past clicks say", evidence)] if evidence else []),
        Section("drift", "Drift", _drift(run)),
        Section("missing", "Missing values", _missing(run)),
        Section("knots", "Knots", _knots(run)),
        Section("encoding", "What the model learned", _encoding(findings)),
    ]


def _evidence(findings: ModelFindings) -> list[Block]:
    curves, combined = evidence_figure(findings.evidence), findings.combinations
    found: list[Block] = [] if curves is None else [curves]
    if combined is not None:
        found += [
            Paragraph(
                "For these columns the model also learns from values that occur together: past errors of its scores on "
                "such rows correct the next ones, by this much (root mean square)."
            ),
            Details(f"{len(combined.rows)} pairs and triples of columns", combined),
        ]
    return found


def run_facts(run: RunRecord) -> list[tuple[str, str]]:
    """The numbers at the top of the page."""
    speed = run.rows / run.seconds if run.rows and run.seconds else None
    recent = [("window_", f", last {compact(run.window)}")] if run.windowed else []
    return [
        *(
            (f"{title}{where}", fixed(run.metrics.get(f"{kind}{metric}")))
            for metric, title in (("auc", "AUC"), ("logloss", "LogLoss"))
            for kind, where in [("", ""), *recent]
        ),
        ("Rows", count(run.rows)),
        ("Time", duration(run.seconds)),
        ("Rows per second", compact(speed)),
    ]


def notes(given: Sequence[str]) -> list[Block]:
    """Remarks, if there are any."""
    return [Notes(given)] if given else []


def _bad_rows(number: int, first: Sequence[str]) -> list[Block]:
    if not number:
        return []
    rows = "1 row was" if number == 1 else f"{count(number)} rows were"
    return [Paragraph(f"{rows} left out; bad_rows.csv in the run's folder lists them. The first:"), Notes(first)]


def _features(run: RunRecord, columns: Sequence[ColumnSummary]) -> list[Block]:
    rows = run.importance.get("rows")
    measured = (
        f"Importance is the rise of LogLoss when a column’s values are permuted among {count(rows)} of the last rows, "
        "with its standard error. "
        if rows
        else "The importance of the columns was not measured. "
    )
    explained = Paragraph(
        f"{measured}The curve is the prediction as a numerical column moves from its smallest to its largest value, "
        "with the others at their medians; each curve has a scale of its own."
    )
    return [explained, Ranking(columns[:MOST_LISTED], max(len(columns) - MOST_LISTED, 0))]


def _calibration(run: RunRecord) -> list[Block]:
    figure = calibration_figure(run.reliability) if run.reliability else None
    explained = Paragraph(
        f"Over all rows, mean prediction over mean label is {fixed(run.metrics.get('calibration'), 3)}; the expected "
        "calibration error, the mean distance of click rates from predictions, is "
        f"{fixed(run.metrics.get('ece'))}."
    )
    too_few = "There are too few predictions to draw a diagram."
    return [explained, *drawn([figure, rate_figure(run)], too_few, side_by_side=True)]


def category_blocks(run: RunRecord, columns: Sequence[ColumnSummary]) -> list[Block]:
    """A table of all categorical columns, the most important first."""
    categorical = [column for column in columns if column.kind == "categorical"]
    if not categorical:
        return [Paragraph("There is no categorical column.")]
    if not any(isfinite(column.table_rows) for column in categorical):
        return [Paragraph("The number of values of the columns was not recorded.")]
    mode = run.config.get("model", {}).get("categorical_options", {}).get("mode", "hash")
    explained = {
        "hash": "Every value is hashed to a row of its column’s table; the model cannot tell values on one row apart.",
        "vocabulary": "A value that has been seen often enough gets a row of its own, as long as its column’s table "
        "has a free one; all other values share one row.",
    }[mode]
    rows = [
        (
            column.name,
            count(column.distinct),
            percent(column.fresh),
            percent(column.missing),
            count(column.table_rows),
            percent(column.filled, 0),
            percent(column.shared, 0),
            fixed(column.rise),
        )
        for column in categorical
    ]
    settled = all(column.fresh < 0.001 for column in categorical)
    head = ("column", "values", "new", "missing", "table rows", "in use", "shared", "importance")
    return [
        Paragraph(
            f"{explained} “New” is the share of rows in the second half of the stream with a value never seen before, "
            "“in use” the share of the table’s rows that hold a value, “shared” the share of values that are not alone "
            "on their row; the last two are expected values. Counts above 1,024 are estimates, to about 3 %."
        ),
        Table(head, rows),
        *([Paragraph("Hardly any row of the second half has a value that was not seen before.")] if settled else []),
    ]


def _drift(run: RunRecord) -> list[Block]:
    if run.drift is None:
        return [Paragraph("There is no numerical feature, or no row after the first ones to compare with them.")]
    return [*drift_figures(run.drift)]


def _missing(run: RunRecord) -> list[Block]:
    figure = missing_figure(run.missing, run.segment_rows)
    return drawn([figure], "No value is missing." if run.missing else "Missing values were not recorded.")


def _knots(run: RunRecord) -> list[Block]:
    if run.knots is None:
        short = ", or the stream is shorter than a segment, at whose end they are recorded" * (
            len(run.segment_rows) < 2
        )
        return [Paragraph(f"This method keeps no knots{short}.")]
    explained = Paragraph("Quantiles of each feature, as estimated by the method along the stream.")
    return [explained, *drawn(knot_figures(run.knots), "No feature had a value.")]


def _encoding(findings: ModelFindings) -> list[Block]:
    if findings.learned is None:
        return [Paragraph(findings.reason)]
    figures: list[Figure | None] = [*encoding_figures(findings.learned)]
    if findings.modulation is not None:
        figures.append(modulation_figure(findings.modulation, findings.learned))
    without = [Paragraph("This method has no vector per feature.")] if findings.learned.embedding is None else []
    return [*without, *drawn(figures, "No feature had a value.")]


def _setup(run: RunRecord) -> list[Details]:
    parts = (("Configuration", run.config), ("Columns", run.schema), ("Environment", run.environment))
    return [details for title, given in parts for details in settings(title, given)]


def _bad_batches(given: Sequence[tuple[int, str]]) -> list[Block]:
    """Batches that were not learned from, with their first row and the reason."""
    if not given:
        return [Paragraph("No batch was skipped.")]
    more = f" The first {_LISTED} are listed." if len(given) > _LISTED else ""
    skipped = f"{count(len(given))} {'batch was' if len(given) == 1 else 'batches were'} skipped.{more}"
    rows = [(count(row), reason) for row, reason in given[:_LISTED]]
    return [Paragraph(skipped, "said warning"), Table(("first row", "reason"), rows, left=frozenset({1}))]

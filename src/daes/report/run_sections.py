"""The sections of a run's page."""

from daes.formatting import compact, count, duration, fixed
from daes.report.data import drift_figures, knot_figures, missing_figure
from daes.report.document import Section, grid, stack
from daes.report.figures import Figure
from daes.report.learned import Look
from daes.report.learned_figures import encoding_figures, modulation_figure
from daes.report.markup import paragraph
from daes.report.performance import calibration_figure, rate_figure, score_figures, throughput_figure
from daes.report.run import Run
from daes.report.setup import bad_batches, notes, settings


def run_sections(run: Run, look: Look) -> list[Section]:
    """All that there is to say about a run, in order."""
    return [
        Section("scores", "Scores", _scores(run)),
        Section("calibration", "Calibration", _calibration(run)),
        *stream_sections(run, look),
        Section("throughput", "Throughput", _throughput(run)),
        Section("setup", "Configuration", _setup(run)),
        Section("notes", "Notes", notes(run.notes) + bad_batches(run.bad_batches)),
    ]


def stream_sections(run: Run, look: Look, ids: str = "", group: str = "") -> list[Section]:
    """What the stream was like, and what the method made of it; `ids` comes before anchors."""
    return [
        Section(f"{ids}drift", "Drift", _drift(run, ids), group),
        Section(f"{ids}missing", "Missing values", _missing(run, ids), group),
        Section(f"{ids}knots", "Knots", _knots(run, ids), group),
        Section(f"{ids}encoding", "What the model learned", _encoding(look, ids), group),
    ]


def run_facts(run: Run) -> list[tuple[str, str]]:
    """The numbers at the top of the page."""
    speed = run.rows / run.seconds if run.rows and run.seconds else None
    window = f"last {compact(run.window)}" if run.window else "window"
    return [
        ("AUC", fixed(run.metrics.get("auc"))),
        (f"AUC, {window}", fixed(run.metrics.get("window_auc"))),
        ("LogLoss", fixed(run.metrics.get("logloss"))),
        (f"LogLoss, {window}", fixed(run.metrics.get("window_logloss"))),
        ("Rows", count(run.rows)),
        ("Time", duration(run.seconds)),
        ("Rows a second", compact(speed)),
    ]


def _scores(run: Run) -> str:
    why = "".join(paragraph(f"{name} is not defined: {reason}.", "said") for name, reason in run.undefined.items())
    return why + (grid(score_figures(run)) or paragraph("No score was recorded."))


def _calibration(run: Run) -> str:
    figure = calibration_figure(run.reliability) if run.reliability else None
    said = paragraph(
        f"Mean prediction over mean label is {fixed(run.metrics.get('calibration'), 3)}: 1 is calibrated, 1.1 "
        f"promises 10\u00a0% too many clicks. The expected calibration error is {fixed(run.metrics.get('ece'))}."
    )
    return said + (grid([figure, rate_figure(run)]) or paragraph("There are too few predictions to draw a diagram."))


def _drift(run: Run, ids: str) -> str:
    if run.drift is None:
        return paragraph("There is no numerical feature, or its drift was not followed.")
    return stack(drift_figures(run.drift), ids) or paragraph("The stream is too short to compare its segments.")


def _missing(run: Run, ids: str) -> str:
    figure = missing_figure(run.missing, run.segment_rows)
    return stack([figure], ids) or paragraph("No value is missing." if run.missing else "This was not followed.")


def _knots(run: Run, ids: str) -> str:
    if run.knots is None:
        return paragraph("This method keeps no knots.")
    said = paragraph("Quantiles of each feature as the method knew them while the stream went by.")
    return said + (stack(knot_figures(run.knots), ids) or paragraph("No feature had a value."))


def _encoding(look: Look, ids: str) -> str:
    if look.learned is None:
        return paragraph(look.reason)
    figures: list[Figure | None] = [*encoding_figures(look.learned)]
    if look.modulation is not None:
        figures.append(modulation_figure(look.modulation, look.learned))
    said = "" if look.learned.embedding is not None else paragraph("This method has no vector of its own a feature.")
    return said + (stack(figures, ids) or paragraph("No feature had a value."))


def _throughput(run: Run) -> str:
    return stack([throughput_figure(run)]) or paragraph("There are too few records to follow the speed.")


def _setup(run: Run) -> str:
    parts = (("Configuration", run.config), ("Columns", run.schema), ("Environment", run.environment))
    return "".join(settings(title, given) for title, given in parts)

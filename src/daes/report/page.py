"""One page for a run or a comparison: a single HTML file that opens offline."""

from pathlib import Path

from daes.report.data import drift_figures, knot_figures, missing_figure
from daes.report.document import Section, document, grid, stack, write_text
from daes.report.encoding import encoding_figures, modulation_figure
from daes.report.folder import read_run
from daes.report.learned import Learned, Modulation, look_at_model
from daes.report.markup import facts, paragraph
from daes.report.numbers import compact, count, decimals, duration
from daes.report.performance import calibration_figure, rate_figure, score_figures, throughput_figure
from daes.report.run import Run
from daes.report.setup import bad_batches, notes, settings


def write_report(run_dir: str | Path) -> Path:
    """Write `report.html` into the folder of a run of `daes train`, and return where it is."""
    folder = Path(run_dir)
    run = read_run(folder)
    learned, modulation = look_at_model(folder / "model", run)
    path = folder / "report.html"
    write_text(path, run_page(run, learned, modulation))
    return path


def run_page(run: Run, learned: Learned | None = None, modulation: Modulation | None = None) -> str:
    """The page of one run as HTML."""
    sections = [
        Section("scores", "Scores", _scores(run)),
        Section("calibration", "Calibration", _calibration(run)),
        Section("drift", "Drift", _drift(run)),
        Section("knots", "Knots", _knots(run)),
        Section("encoding", "What the model learned", _encoding(learned, modulation)),
        Section("missing", "Missing values", _missing(run)),
        Section("throughput", "Throughput", _throughput(run)),
        Section(
            "setup", "Configuration", settings("Configuration", run.config) + settings("Environment", run.environment)
        ),
        Section("remarks", "Notes", notes(run.notes) + bad_batches(run.bad_batches)),
    ]
    return document(run.title, run.lead, facts(_facts(run)), sections)


def _facts(run: Run) -> list[tuple[str, str]]:
    speed = run.rows / run.seconds if run.rows and run.seconds else None
    window = f", last {compact(run.window)}" if run.window else ", window"
    return [
        ("AUC", decimals(run.metrics.get("auc"))),
        (f"AUC{window}", decimals(run.metrics.get("window_auc"))),
        ("LogLoss", decimals(run.metrics.get("logloss"))),
        (f"LogLoss{window}", decimals(run.metrics.get("window_logloss"))),
        ("Rows", count(run.rows)),
        ("Time", duration(run.seconds)),
        ("Rows a second", compact(speed)),
    ]


def _scores(run: Run) -> str:
    why = "".join(paragraph(f"{name} is not defined: {reason}.", "said") for name, reason in run.undefined.items())
    return why + (grid(score_figures(run)) or paragraph("No score was recorded."))


def _calibration(run: Run) -> str:
    figure = calibration_figure([("this run", "c1", run.reliability)]) if run.reliability else None
    said = paragraph(
        f"Mean prediction over mean label is {decimals(run.metrics.get('calibration'), 3)}: 1 is calibrated, 1.1 "
        f"promises 10 % too many clicks. The expected calibration error is {decimals(run.metrics.get('ece'))}."
    )
    return said + (grid([figure, rate_figure(run)]) or paragraph("There are too few predictions to draw a diagram."))


def _drift(run: Run) -> str:
    if run.drift is None or not run.drift.names:
        return paragraph("There is no numerical feature, or its drift was not followed.")
    return stack(drift_figures(run.drift)) or paragraph("The stream is too short to compare its segments.")


def _knots(run: Run) -> str:
    if run.knots is None:
        return paragraph("This method keeps no knots.")
    said = paragraph("Quantiles of each feature as the method knew them while the stream went by.")
    return said + (stack(knot_figures(run.knots)) or paragraph("No knot was recorded."))


def _encoding(learned: Learned | None, modulation: Modulation | None) -> str:
    if learned is None:
        return paragraph("There is no numerical feature, or the model is not in the folder.")
    figures = encoding_figures(learned)
    if modulation is not None:
        figures.append(modulation_figure(modulation, learned))
    return stack(figures) or paragraph("No feature has a value.")


def _missing(run: Run) -> str:
    figure = missing_figure(run.missing, run.segment_rows)
    return figure.html() if figure else paragraph("No value is missing.")


def _throughput(run: Run) -> str:
    figure = throughput_figure(run)
    return figure.html() if figure else paragraph("There are too few records to follow the speed.")

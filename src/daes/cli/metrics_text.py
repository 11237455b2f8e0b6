"""Metrics of a stream as a table for the terminal."""

from collections.abc import Mapping

from daes.formatting import fixed
from daes.table import Cell, Table

_NAMES = {
    "auc": ("AUC", "how often a click scores above a non-click"),
    "logloss": ("LogLoss", "mean of −log p(what happened)"),
    "normalized_entropy": ("normalised entropy", "LogLoss over that of knowing the click rate alone"),
    "brier": ("Brier score", "mean squared error of the probability"),
    "calibration": ("calibration", "clicks predicted over clicks"),
    "ece": ("calibration error", "mean |predicted − clicked| over bins"),
}


def metrics_table(metrics: Mapping[str, float]) -> Table:
    """One line per metric: over the stream and, if there is one, over the window."""
    scopes = {"stream": "", "window": "window_"} if "window_auc" in metrics else {"stream": ""}
    rows = [
        (title, *(fixed(metrics[f"{prefix}{name}"]) for prefix in scopes.values()), Cell(meaning, style="dim"))
        for name, (title, meaning) in _NAMES.items()
    ]
    return Table(("metric", *scopes, ""), rows, left=frozenset({0, len(scopes) + 1}))

"""Metrics of a stream as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

from daes.cli.console import plain_table
from daes.formatting import fixed

_NAMES = {
    "auc": ("AUC", "how often a click scores above a non-click"),
    "logloss": ("LogLoss", "mean of −log p(what happened)"),
    "normalized_entropy": ("normalised entropy", "LogLoss over that of knowing the click rate alone"),
    "brier": ("Brier score", "mean squared error of the probability"),
    "calibration": ("calibration", "clicks predicted over clicks"),
    "ece": ("calibration error", "mean |predicted − clicked| over bins"),
}


def metrics_table(metrics: Mapping[str, float]) -> Any:
    """One line per metric, over the stream and, where there is one, over the window."""
    windowed = "window_auc" in metrics
    table = plain_table()
    for place, heading in enumerate(["metric", "stream", *(["window"] if windowed else []), ""]):
        table.add_column(heading, justify="right" if heading in ("stream", "window") else "left", no_wrap=place < 3)
    for name, (title, meaning) in _NAMES.items():
        values = [metrics[name], *([metrics[f"window_{name}"]] if windowed else [])]
        table.add_row(title, *(fixed(value) for value in values), f"[dim]{meaning}[/dim]")
    return table

"""A comparison for the report: its table, the order of its methods, and their styles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from daes.experiments.comparison import Comparison
from daes.experiments.scores import higher_is_better
from daes.formatting import count, counted
from daes.report.figures import COLOURS, DASHES, Line
from daes.storage.run_folder import read_json

CEILING = "best possible"
"""Label of the scores of the true probabilities."""

_TITLES = {
    "stream": {
        "half_auc": "AUC, second half",
        "half_logloss": "LogLoss, second half",
        "auc": "AUC, all rows",
        "logloss": "LogLoss, all rows",
    },
    "paper": {"auc": "AUC", "logloss": "LogLoss"},
}
_HOW = {
    "stream": "in one pass, each scored before it was learned from",
    "paper": "split by time into training, validation and test",
}


@dataclass(frozen=True)
class Compared:
    """A comparison with further information.

    Args:
        table: the results.
        ceiling: the scores of the true probabilities, by measure, if known.
        run_dir: the folder of a run on the same stream, for what a comparison does not store: drift, knots and what was
            learned.
    """

    table: Comparison
    ceiling: Mapping[str, float] = field(default_factory=dict)
    run_dir: Path | None = None

    @property
    def name(self) -> str:
        """Name of the stream."""
        data = self.table.about.get("data", {})
        return str(data.get("name") or data.get("what") or "a stream")

    @property
    def titles(self) -> dict[str, str]:
        """The titles of the measures, the more informative ones first.

        Measures over all rows also count the scores of a model that is not trained yet.
        """
        return _TITLES[self.table.protocol]

    @property
    def headline(self) -> tuple[str, str]:
        """The AUC and the LogLoss by which methods are ordered."""
        auc, logloss, *_ = self.titles
        return auc, logloss

    @property
    def subject(self) -> str | None:
        """The method that is highlighted and tested against the others."""
        return self.table.default_subject()[0]

    def mean(self, label: str, backbone: str, measure: str) -> float:
        """Mean over the seeds; NaN if there is no value."""
        return self.table.summary(label, backbone, measure).mean

    def order(self, backbone: str, measure: str) -> list[str]:
        """The methods on a backbone, best first; those without a value come last."""
        sign = -1.0 if higher_is_better(measure) else 1.0
        means = {label: sign * self.mean(label, backbone, measure) for label in self.table.methods}
        return sorted(means, key=lambda label: np.nan_to_num(means[label], nan=np.inf))

    def line(self, label: str) -> Line:
        """A method's line without its points: colour, width and dash are the same everywhere on the page.

        The subject has a style of its own; the others take the remaining colours in order, then other dashes.
        """
        if label == self.subject:
            return Line(label, label, colour=COLOURS[0], width=2.6)
        others = [method for method in self.table.methods if method != self.subject]
        turn, colour = divmod(others.index(label), len(COLOURS) - 1)
        return Line(label, label, colour=COLOURS[1 + colour], width=1.6, dash=DASHES[turn % len(DASHES)])

    @property
    def lead(self) -> str:
        """The comparison in a sentence."""
        table = self.table
        rows = max((result.rows for result in table.finished), default=None) if table.protocol == "stream" else None
        what = str(table.about.get("data", {}).get("what", self.name))
        return (
            f"{counted(len(table.methods), 'method')} × {counted(len(table.backbones), 'backbone')} × "
            f"{counted(len(table.seeds), 'seed')} on {what}"
            f"{'' if rows is None else f', {count(rows)} rows'}, {_HOW[table.protocol]}."
        )

    def common_settings(self) -> dict[str, Any]:
        """The settings that all trials share; the seed within a setting does not count."""
        settings = [result.settings for result in self.table.finished]
        own = {"label", "method", "seed", "backbone"}

        def without_seed(value: Any) -> Any:
            return {k: v for k, v in value.items() if k != "seed"} if isinstance(value, dict) else value

        return {
            name: value
            for name, value in (settings[0] if settings else {}).items()
            if name not in own and all(without_seed(trial.get(name)) == without_seed(value) for trial in settings)
        }


def compared_in(
    compare_dir: str | Path, *, run_dir: str | Path | None = None, ceiling: Mapping[str, float] | None = None
) -> Compared:
    """The comparison in a folder of `daes compare`, with further information.

    Args:
        compare_dir: the folder.
        run_dir: a run on the same stream, whose drift, knots and learned encodings the page also shows.
        ceiling: the scores of the true probabilities, by measure (`auc`, `logloss`, `half_auc`, `half_logloss`).
    """
    path = Path(compare_dir) / "comparison.json"
    if not path.is_file():
        raise FileNotFoundError(f"no comparison in {compare_dir}: it has no {path.name}")
    try:
        table = Comparison.from_dict(read_json(path))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a complete comparison: {error!r}") from error
    return Compared(table, dict(ceiling or {}), None if run_dir is None else Path(run_dir))

"""Ablations: variants of a method, trained alike, in one table and one figure."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from daes.paper.data import DataSet
from daes.paper.experiment import TRAINING, Experiment, Findings, Means, Settings
from daes.paper.result import Result
from daes.paper.scores import failures, how_trained, scores_table
from daes.paper.trials import Variant, run_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BACKBONES = ("deepfm",)
"""The paper does not say which backbone the figures of its ablations show."""
FIXED_METHODS = tuple(name for name in TRAINING if name != "methods")
"""The settings of an ablation whose methods are its own."""

Variants = Callable[[Settings, DataSet], tuple[Mapping[str, Variant], Findings]]


def ablation(
    *,
    name: str,
    title: str,
    what: str,
    claim: str,
    differs: str,
    variants: Variants,
    verdict: Callable[[Result], str],
    draw: Callable[[Result], "Figure"],
    more: Callable[[Result], str] | None = None,
    uses: tuple[str, ...] = FIXED_METHODS,
) -> Experiment:
    """An experiment that trains variants and shows their scores.

    Args:
        name, title, what, claim, differs, verdict, draw, uses: as for `Experiment`.
        variants: what to train, by label, and what else the result should hold.
        more: Markdown to follow the scores.
    """

    def run(settings: Settings, data: DataSet | None, means: Means) -> Findings:
        assert data is not None
        trained, further = variants(settings, data)
        return {**run_trials(settings, data, means, trained, BACKBONES), **further}

    def markdown(result: Result) -> str:
        parts = [how_trained(result), scores_table(result.results) + failures(result.results)]
        return "\n\n".join([*parts, more(result)] if more is not None else parts)

    return Experiment(
        name=name,
        title=title,
        what=what,
        claim=claim,
        differs=differs,
        run=run,
        markdown=markdown,
        verdict=verdict,
        draw=draw,
        data=("adstream", "flights"),
        uses=uses,
    )

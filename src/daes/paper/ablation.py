"""Ablations: variants of a method, trained alike, in one table and one figure."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, product
from typing import TYPE_CHECKING

from daes.paper.experiment import TRAINING, Experiment, Findings, Means, Settings
from daes.paper.judging import Glance
from daes.paper.result import Result
from daes.paper.scores import Comparison, Series, compare_pairs, failures, how_trained, scores_table, series_table
from daes.paper.trials import Variant, train_variants
from daes.stream.dataset import Dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BACKBONES = ("deepfm",)
"""The paper does not say which backbone the figures of its ablations show."""
FIXED_METHODS = tuple(name for name in TRAINING if name != "methods")
"""The settings of an ablation whose methods are its own."""

Variants = Callable[[Settings, Dataset], tuple[Mapping[str, Variant], Findings]]


def ablation(
    *,
    name: str,
    title: str,
    what: str,
    claim: str,
    differs: str,
    variants: Variants,
    verdict: Callable[[Result], str],
    glance: Callable[[Result], Glance],
    draw: Callable[[Result], "Figure"],
    series: tuple[str, Callable[[Result], Series]] | None = None,
    more: Callable[[Result], str] | None = None,
    uses: tuple[str, ...] = FIXED_METHODS,
) -> Experiment:
    """An experiment that trains variants and shows their scores.

    Args:
        name, title, what, claim, differs, verdict, glance, draw, uses: as for `Experiment`.
        variants: what to train, by label, and what else the result should hold.
        series: where labels are places on lines, the name of the places and the lines: the table has a row a place.
        more: Markdown to follow the scores.
    """

    def run(settings: Settings, data: Dataset | None, means: Means) -> Findings:
        assert data is not None
        trained, further = variants(settings, data)
        return {**train_variants(settings, data, means, trained, BACKBONES), **further}

    def markdown(result: Result) -> str:
        found = result.results
        scores = scores_table(found) if series is None else series_table(found, series[1](result), series[0])
        parts = [how_trained(result), scores + failures(found)]
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
        glance=glance,
        draw=draw,
        data=("adstream", "flights"),
        uses=uses,
    )


def ours(result: Result) -> list[str]:
    """The forms of DAES among a result's methods."""
    return [method for method in result.results["methods"] if method.startswith("daes")]


def against_autodis(result: Result, labels: Callable[[str], Sequence[str]]) -> Comparison:
    """The forms of DAES against AutoDis, label by label, where there are both; `labels` gives those of a method."""
    rivals = [method for method in result.results["methods"] if method == "autodis"]
    pairs = [zip(labels(one), labels(other), strict=True) for one, other in product(ours(result), rivals)]
    return compare_pairs(result, chain.from_iterable(pairs))

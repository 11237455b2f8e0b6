"""Ablations of DAES: variants of a method, trained the same way, in one table and one figure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, product
from typing import Any

from daes.formatting import fixed
from daes.paper import figures
from daes.paper.experiment import TRAINING, Execution, Experiment, ExperimentSettings, Findings
from daes.paper.judging import Judgement, most
from daes.paper.published import BETA
from daes.paper.result import ExperimentResult
from daes.paper.scores import (
    PairComparison,
    Series,
    changes,
    compare_pairs,
    dot_figure,
    failures,
    how_trained,
    line_figure,
    scores_of,
    scores_table,
    series_table,
)
from daes.paper.titles import backbone_title, method_title
from daes.paper.variants import Variant, train_variants
from daes.stream.dataset import Dataset

BACKBONES = ("deepfm",)
"""The paper does not say which backbone the figures of its ablations show."""
FIXED_METHODS = tuple(name for name in TRAINING if name != "methods")
"""The settings of an ablation that trains methods of its own."""


@dataclass(frozen=True)
class Lines:
    """Scores that lie on lines, such as those of one method at several sizes.

    Args:
        header: header of the first column of the table.
        axis: label of the figure's axis.
        series: the lines of a result.
    """

    header: str
    axis: str
    series: Callable[[ExperimentResult], Series]


Groups = Callable[[ExperimentResult], Mapping[str, Sequence[str]]]
"""Labels that share a colour, for scores drawn as dots."""


def ablation(
    *,
    variants: Callable[[ExperimentSettings, Dataset], tuple[Mapping[str, Variant], Findings]],
    judge: Callable[[ExperimentResult], Judgement],
    figure: str,
    shape: Lines | Groups,
    further: Callable[[ExperimentResult], str] = lambda result: "",
    more: Callable[[ExperimentResult], str] | None = None,
    uses: tuple[str, ...] = FIXED_METHODS,
    **about: Any,
) -> Experiment:
    """An experiment that trains variants and shows their scores.

    Args:
        variants: the variants by label, and further findings.
        judge, uses, about: arguments of `Experiment`.
        figure: title of the figure.
        shape: lines, with one table row per position on them; otherwise dots in groups.
        further: continues the verdict after the sentence of `judge`.
        more: Markdown that follows the scores.
    """

    def run(settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        assert data is not None
        trained, rest = variants(settings, data)
        return {**train_variants(settings, data, execution, trained, BACKBONES), **rest}

    def markdown(result: ExperimentResult) -> str:
        found = result.results
        if isinstance(shape, Lines):
            scores = series_table(found, shape.series(result), shape.header)
        else:
            scores = scores_table(found)
        parts = [how_trained(result), scores + failures(found)]
        return "\n\n".join([*parts, more(result)] if more is not None else parts)

    def draw(result: ExperimentResult) -> "figures.Figure":
        if isinstance(shape, Lines):
            return line_figure(result, shape.series(result), shape.axis, figure)
        return dot_figure(result, shape(result), figure)

    return Experiment(
        run=run,
        markdown=markdown,
        verdict=lambda result: f"{judge(result)[1]} {further(result)}".rstrip(),
        judge=judge,
        draw=draw,
        data=("adstream", "flights"),
        uses=uses,
        **about,
    )


def against_autodis(result: ExperimentResult, labels: Callable[[str], Sequence[str]]) -> PairComparison:
    """The forms of DAES against AutoDis, label by label, if both are there; `labels` gives the labels of a method."""
    rivals = [method for method in result.results["methods"] if method == "autodis"]
    pairs = [zip(labels(one), labels(other), strict=True) for one, other in product(_daes(result), rivals)]
    return compare_pairs(result, chain.from_iterable(pairs))


def _daes(result: ExperimentResult) -> list[str]:
    """The forms of DAES among a result's methods."""
    return [method for method in result.results["methods"] if method.startswith("daes")]


def _titles(result: ExperimentResult) -> dict[str, str]:
    return {method: method_title(method) for method in result.results["methods"]}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


# Interpolation space

SPACES = {
    "gate, quantile space": Variant("daes-gate"),
    "gate, value space": Variant("daes-gate", {"value_space": True}),
    "tran, quantile space": Variant("daes-tran"),
    "tran, value space": Variant("daes-tran", {"value_space": True}),
    "no modulation, quantile space": Variant("daes-gate", {"beta": 0.0}),
    "no modulation, value space": Variant("daes-gate", {"beta": 0.0, "value_space": True}),
    "distances to quantiles": Variant("dae"),
}


def _judge_space(result: ExperimentResult) -> Judgement:
    """Quantile space has a significantly higher AUC than value space in most cases."""
    kinds = ("gate", "tran", "no modulation")
    spaces = compare_pairs(result, [(f"{kind}, quantile space", f"{kind}, value space") for kind in kinds])
    return spaces.parts, f"Quantile space against value space: {spaces}"


def _distances(result: ExperimentResult) -> str:
    pair = ("no modulation, quantile space", "distances to quantiles")
    return f"Quantile space without modulation against distances to quantiles: {compare_pairs(result, [pair])}"


def _spaces(result: ExperimentResult) -> dict[str, list[str]]:
    kinds = ("quantile space", "value space", "distances to quantiles")
    return {kind: [label for label in result.results["scores"] if label.endswith(kind)] for kind in kinds}


SPACE = ablation(
    name="space",
    title="Interpolation space",
    what="DAES with knots at quantiles against knots evenly spaced in value, and against distances to quantiles",
    claim="""
    Figure 3: interpolation in quantile space is better than in value space. (Numbers are only in the figure.)
    """,
    differs="""
    The paper uses "value space" in two senses. In its figure values are interpolated there: that is DAES with M equal
    intervals between the smallest and the largest value seen, and everything else unchanged, with both modulations and
    without. In its text (§3.3 and the appendix on limitations) it means the distances |x − q| of a value to quantiles,
    which DAE encodes; that row is our reconstruction of DAE, which also differs from DAES in its quantiles (order
    statistics, no reservoir) and in a small network instead of interpolation.
    """,
    variants=lambda settings, data: (SPACES, {}),
    judge=_judge_space,
    further=_distances,
    figure="Interpolation in quantile space and in value space",
    shape=_spaces,
)

# β

BETAS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
MODULATIONS = ("gate", "tran")


def beta_label(kind: str, beta: float) -> str:
    """One label for both modulations at β = 0, where there is none."""
    return f"{kind}, β = {beta:g}" if beta else "no modulation (β = 0)"


def _beta_series(result: ExperimentResult) -> Series:
    return {kind: (BETAS, [beta_label(kind, beta) for beta in BETAS]) for kind in MODULATIONS}


def _judge_beta(result: ExperimentResult) -> Judgement:
    """β = 0.5 has a significantly higher AUC than no modulation in most cases."""
    modulated = compare_pairs(result, [(beta_label(kind, BETA), beta_label(kind, 0.0)) for kind in MODULATIONS])
    return modulated.parts, f"β = {BETA:g} against no modulation: {modulated}"


def _highest(result: ExperimentResult) -> str:
    scores, best = scores_of(result.results), []
    for kind, (_, labels) in _beta_series(result).items():
        for backbone in result.results["training"]["backbones"]:
            label = scores.best(backbone, "auc", labels)
            if label is not None:
                best.append(f"{BETAS[labels.index(label)]:g} ({kind}, {backbone_title(backbone)})")
    return f"The β with the highest AUC: {', '.join(best)}." if best else ""


BETA_ABLATION = ablation(
    name="beta",
    title="Distribution modulation: β",
    what="β from 0 to 1, gate and tran",
    claim="""
    Figure 4: weights modulated by the context (β > 0) are significantly better than others (β = 0). (Numbers are only
    in the figure.)
    """,
    differs="""
    β = 0 is one model for both modulations. The claim is judged at the paper's default, β = 0.5. The paper does not say
    which backbone its figure shows.
    """,
    variants=lambda settings, data: (
        {beta_label(kind, beta): Variant(f"daes-{kind}", {"beta": beta}) for kind in MODULATIONS for beta in BETAS},
        {},
    ),
    judge=_judge_beta,
    further=_highest,
    figure="The reach of the context, from none to all",
    shape=Lines("β", "β", _beta_series),
)

# The number of meta-embeddings

COUNTS = (10, 20, 30, 40, 50)


def count_label(method: str, number: int) -> str:
    """The label of a method with this number of meta-embeddings."""
    return f"{method_title(method)}, M = {number}"


def _count_labels(method: str) -> list[str]:
    return [count_label(method, number) for number in COUNTS]


def _count_variants(settings: ExperimentSettings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
    methods = settings.methods or ("daes-gate", "daes-tran", "autodis")
    chosen = {count_label(method, m): Variant(method, {"num_meta": m}) for method in methods for m in COUNTS}
    return chosen, {"methods": methods}


def _rise(result: ExperimentResult, method: str) -> list[float | None]:
    first, *_, last = _count_labels(method)
    return changes(result, first, last)


def _judge_count(result: ExperimentResult) -> Judgement:
    """(1) DAES has a significantly higher AUC than AutoDis at the same M in most cases. (2) From M = 10 to 50 the AUC
    of DAES rises in most cases. (3) That of AutoDis falls in most cases.
    """
    against = against_autodis(result, _count_labels)
    sentence = f"DAES against AutoDis: {against}"
    if not against.parts:
        return (), sentence
    daes = _known(gain for method in _daes(result) for gain in _rise(result, method))
    autodis = _known(_rise(result, "autodis"))
    rises, falls = sum(gain > 0 for gain in daes), sum(gain < 0 for gain in autodis)
    return (*against.parts, most(rises, len(daes)), most(falls, len(autodis))), (
        f"{sentence} From M = {COUNTS[0]} to {COUNTS[-1]} the AUC of DAES rises in {rises} of {len(daes)} cases, that "
        f"of AutoDis falls in {falls} of {len(autodis)}."
    )


def _trends(result: ExperimentResult) -> str:
    trends = (
        f"{title} {', '.join(fixed(gain, sign=True) for gain in _rise(result, method))}"
        for method, title in _titles(result).items()
    )
    return f"Change in AUC from M = {COUNTS[0]} to {COUNTS[-1]}, by backbone: {'; '.join(trends)}."


META_COUNT = ablation(
    name="meta-count",
    title="Number of meta-embeddings",
    what="M = 10 … 50 meta-embeddings, DAES against AutoDis",
    claim="""
    Figure 5: DAES is better than AutoDis at every M from 10 to 50 and improves slightly with M, while AutoDis gets
    worse. (Criteo; numbers are only in the figure.)
    """,
    differs="""
    The input of AutoDis is min–max scaled as in its paper, which is a disadvantage with long tails.
    """,
    variants=_count_variants,
    judge=_judge_count,
    further=_trends,
    figure="More meta-embeddings: DAES and AutoDis",
    shape=Lines(
        "M",
        "meta-embeddings per feature, M",
        lambda result: {title: (COUNTS, _count_labels(method)) for method, title in _titles(result).items()},
    ),
    uses=TRAINING,
)

# The number of numerical features


def _feature_label(method: str, number: int) -> str:
    return f"{method_title(method)}, {number} numerical" if number else "categorical fields only"


def _feature_labels(result: ExperimentResult, method: str) -> list[str]:
    return [_feature_label(method, number) for number in range(len(result.results["features"]) + 1)]


def _feature_variants(settings: ExperimentSettings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
    methods, features = settings.methods or ("daes-gate", "autodis"), data.schema.numerical
    chosen = {
        _feature_label(method, number): Variant(method, numerical=features[:number])
        for number in range(len(features) + 1)
        # Without a numerical feature the method makes no difference: one model stands for all.
        for method in (methods if number else methods[:1])
    }
    return chosen, {"methods": methods, "features": features}


def _feature_series(result: ExperimentResult) -> Series:
    places = range(len(result.results["features"]) + 1)
    return {title: (places, _feature_labels(result, method)) for method, title in _titles(result).items()}


def _gains(result: ExperimentResult, method: str) -> list[float]:
    """The change in AUC with each added feature, on all backbones, where it is known."""
    return _known(gain for pair in pairwise(_feature_labels(result, method)) for gain in changes(result, *pair))


def _judge_features(result: ExperimentResult) -> Judgement:
    """(1) DAES has a significantly higher AUC than AutoDis with the same features in most cases. (2) Most of the added
    features raise the AUC of DAES.
    """
    # Without a numerical feature there is nothing to compare.
    against = against_autodis(result, lambda method: _feature_labels(result, method)[1:])
    sentence = f"DAES against AutoDis: {against}"
    if not against.parts:
        return (), sentence
    gains = [gain for method in _daes(result) for gain in _gains(result, method)]
    raised = sum(gain > 0 for gain in gains)
    return (*against.parts, most(raised, len(gains))), (
        f"{sentence} {raised} of {len(gains)} added features raise the AUC of DAES."
    )


def _added(result: ExperimentResult) -> str:
    sentences = []
    for method, title in _titles(result).items():
        gains, (first, *_, last) = _gains(result, method), _feature_labels(result, method)
        whole = ", ".join(fixed(gain, sign=True) for gain in changes(result, first, last))
        raised = sum(gain > 0 for gain in gains)
        sentences.append(f"{title}: {raised} of {len(gains)} added features raise the AUC, {whole} in all.")
    return " ".join(sentences)


FEATURE_COUNT = ablation(
    name="feature-count",
    title="Number of numerical features",
    what="numerical features added one by one, DAES against AutoDis",
    claim="""
    Figure 5: starting from the 26 categorical fields of Criteo, every added numerical feature improves DAES, which is
    ahead of AutoDis throughout. (Numbers are only in the figure.)
    """,
    differs="""
    Features are added in the order of the columns; the paper does not state its order. Without numerical features one
    model stands for all methods.
    """,
    variants=_feature_variants,
    judge=_judge_features,
    further=_added,
    figure="Numerical features added one by one",
    shape=Lines("numerical features", "numerical features", _feature_series),
    more=lambda result: f"Features in the order in which they are added: {', '.join(result.results['features'])}.",
    uses=TRAINING,
)

"""Ablations of DAES: variants of a method, trained the same way, in one table and one figure."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise, product

from daes.formatting import fixed
from daes.paper import figures
from daes.paper.experiment import TRAINING, Execution, Experiment, ExperimentSettings, Findings, Judgement, most
from daes.paper.published import BETA
from daes.paper.result import ExperimentResult
from daes.paper.scores import (
    PairComparison,
    Series,
    backbone_title,
    changes,
    compare_pairs,
    dot_figure,
    failures,
    how_trained,
    line_figure,
    method_title,
    scores_of,
    scores_table,
    series_table,
)
from daes.paper.variants import Variant, train_variants
from daes.stream.dataset import Dataset

_BACKBONES = ("deepfm",)
"""The paper does not say which backbone the figures of its ablations show."""
MODULATIONS = ("gate", "tran")
BETAS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
COUNTS = (10, 20, 30, 40, 50)
SPACES = {
    "gate, quantile space": Variant("daes-gate"),
    "gate, value space": Variant("daes-gate", {"value_space": True}),
    "tran, quantile space": Variant("daes-tran"),
    "tran, value space": Variant("daes-tran", {"value_space": True}),
    "no modulation, quantile space": Variant("daes-gate", {"beta": 0.0}),
    "no modulation, value space": Variant("daes-gate", {"beta": 0.0, "value_space": True}),
    "distances to quantiles": Variant("dae"),
}


class Ablation(Experiment):
    """An experiment that trains variants and shows their scores. `figure` is the title of the figure."""

    figure: str
    data = ("adstream", "flights")
    uses = tuple(name for name in TRAINING if name != "methods")

    @abstractmethod
    def variants(self, settings: ExperimentSettings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
        """The variants by label, and further findings."""

    @abstractmethod
    def scores(self, result: ExperimentResult) -> str:
        """The scores as Markdown."""

    def more(self, result: ExperimentResult) -> str:
        """Markdown that follows the scores."""
        return ""

    def further(self, result: ExperimentResult) -> str:
        """Continues the verdict after the sentence of `judge`."""
        return ""

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        assert data is not None
        trained, rest = self.variants(settings, data)
        return {**train_variants(settings, data, execution, trained, _BACKBONES), **rest}

    def markdown(self, result: ExperimentResult) -> str:
        parts = [how_trained(result), self.scores(result) + failures(result.results), self.more(result)]
        return "\n\n".join(filter(None, parts))

    def verdict(self, result: ExperimentResult) -> str:
        return f"{self.judge(result)[1]} {self.further(result)}".rstrip()


class DotAblation(Ablation):
    """Scores drawn as dots, one per seed."""

    @abstractmethod
    def groups(self, result: ExperimentResult) -> Mapping[str, Sequence[str]]:
        """The labels in groups that share a colour."""

    def scores(self, result: ExperimentResult) -> str:
        return scores_table(result.results)

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        return dot_figure(result, self.groups(result), self.figure)


class LineAblation(Ablation):
    """Scores on lines, such as those of one method at several sizes.

    `header` is the header of the first column of the table, `axis` the label of the figure's axis.
    """

    header: str
    axis: str

    @abstractmethod
    def series(self, result: ExperimentResult) -> Series:
        """The lines of a result."""

    def scores(self, result: ExperimentResult) -> str:
        return series_table(result.results, self.series(result), self.header)

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        return line_figure(result, self.series(result), self.axis, self.figure)


class Space(DotAblation):
    name = "space"
    title = "Interpolation space"
    what = "DAES with knots at quantiles against knots evenly spaced in value, and against distances to quantiles"
    claim = """
    Figure 3: interpolation in quantile space is better than in value space. (Numbers are only in the figure.)
    """
    differs = """
    The paper uses "value space" in two senses. In its figure values are interpolated there: that is DAES with M equal
    intervals between the smallest and the largest value seen, and everything else unchanged, with both modulations and
    without. In its text (§3.3 and the appendix on limitations) it means the distances |x − q| of a value to quantiles,
    which DAE encodes; that row is our reconstruction of DAE, which also differs from DAES in its quantiles (order
    statistics, no reservoir) and in a small network instead of interpolation.
    """
    judged_by = "Quantile space has a significantly higher AUC than value space in most cases."
    figure = "Interpolation in quantile space and in value space"

    def variants(self, settings: ExperimentSettings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
        return SPACES, {}

    def judge(self, result: ExperimentResult) -> Judgement:
        kinds = ("gate", "tran", "no modulation")
        spaces = compare_pairs(result, [(f"{kind}, quantile space", f"{kind}, value space") for kind in kinds])
        return spaces.parts, f"Quantile space against value space: {spaces}"

    def further(self, result: ExperimentResult) -> str:
        pair = ("no modulation, quantile space", "distances to quantiles")
        return f"Quantile space without modulation against distances to quantiles: {compare_pairs(result, [pair])}"

    def groups(self, result: ExperimentResult) -> dict[str, list[str]]:
        kinds = ("quantile space", "value space", "distances to quantiles")
        return {kind: [label for label in result.results["scores"] if label.endswith(kind)] for kind in kinds}


class Beta(LineAblation):
    name = "beta"
    title = "Distribution modulation: β"
    what = "β from 0 to 1, gate and tran"
    claim = """
    Figure 4: weights modulated by the context (β > 0) are significantly better than others (β = 0). (Numbers are only
    in the figure.)
    """
    differs = """
    β = 0 is one model for both modulations. The claim is judged at the paper's default, β = 0.5. The paper does not say
    which backbone its figure shows.
    """
    judged_by = "β = 0.5 has a significantly higher AUC than no modulation in most cases."
    figure = "The reach of the context, from none to all"
    header = axis = "β"

    def variants(self, settings: ExperimentSettings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
        pairs = product(MODULATIONS, BETAS)
        return {beta_label(kind, beta): Variant(f"daes-{kind}", {"beta": beta}) for kind, beta in pairs}, {}

    def judge(self, result: ExperimentResult) -> Judgement:
        modulated = compare_pairs(result, [(beta_label(kind, BETA), beta_label(kind, 0.0)) for kind in MODULATIONS])
        return modulated.parts, f"β = {BETA:g} against no modulation: {modulated}"

    def further(self, result: ExperimentResult) -> str:
        scores, best = scores_of(result.results), []
        for kind, (_, labels) in self.series(result).items():
            for backbone in result.results["training"]["backbones"]:
                label = scores.best(backbone, "auc", labels)
                if label is not None:
                    best.append(f"{BETAS[labels.index(label)]:g} ({kind}, {backbone_title(backbone)})")
        return f"The β with the highest AUC: {', '.join(best)}." if best else ""

    def series(self, result: ExperimentResult) -> Series:
        return {kind: (BETAS, [beta_label(kind, beta) for beta in BETAS]) for kind in MODULATIONS}


def beta_label(kind: str, beta: float) -> str:
    """One label for both modulations at β = 0, where there is none."""
    return f"{kind}, β = {beta:g}" if beta else "no modulation (β = 0)"


class AgainstAutoDis(LineAblation):
    """The forms of DAES against AutoDis, position by position."""

    uses = TRAINING

    @abstractmethod
    def labels(self, result: ExperimentResult, method: str) -> list[str]:
        """The labels of a method, in the order of the positions."""

    @abstractmethod
    def positions(self, result: ExperimentResult) -> Sequence[int]:
        """The positions on the lines."""

    def series(self, result: ExperimentResult) -> Series:
        positions = self.positions(result)
        return {method_title(m): (positions, self.labels(result, m)) for m in result.results["methods"]}

    @abstractmethod
    def trend(self, result: ExperimentResult) -> Judgement:
        """How scores change along the positions: the further parts of the claim, with a sentence."""

    def judge(self, result: ExperimentResult) -> Judgement:
        against = self.against(result)
        sentence = f"DAES against AutoDis: {against}"
        if not against.parts:
            return (), sentence
        parts, trend = self.trend(result)
        return (*against.parts, *parts), f"{sentence} {trend}"

    def against(self, result: ExperimentResult) -> PairComparison:
        """Every form of DAES against AutoDis, if both are there; position 0 is the same model for all methods."""
        compared = [place for place, position in enumerate(self.positions(result)) if position]
        rivals = [method for method in result.results["methods"] if method == "autodis"]
        pairs = [
            (self.labels(result, one)[place], self.labels(result, other)[place])
            for one, other, place in product(_daes(result), rivals, compared)
        ]
        return compare_pairs(result, pairs)

    def whole_change(self, result: ExperimentResult, method: str) -> list[float | None]:
        """The change in AUC from the first to the last position, by backbone."""
        first, *_, last = self.labels(result, method)
        return changes(result, first, last)


class MetaCount(AgainstAutoDis):
    name = "meta-count"
    title = "Number of meta-embeddings"
    what = "M = 10 … 50 meta-embeddings, DAES against AutoDis"
    claim = """
    Figure 5: DAES is better than AutoDis at every M from 10 to 50 and improves slightly with M, while AutoDis gets
    worse. (Criteo; numbers are only in the figure.)
    """
    differs = """
    The input of AutoDis is min–max scaled as in its paper, which is a disadvantage with long tails. Trained as the
    defaults are, it gets logarithms.
    """
    judged_by = """
    (1) DAES has a significantly higher AUC than AutoDis at the same M in most cases. (2) From M = 10 to 50 the AUC
    of DAES rises in most cases. (3) That of AutoDis falls in most cases.
    """
    figure = "More meta-embeddings: DAES and AutoDis"
    header = "M"
    axis = "meta-embeddings per feature, M"

    def variants(self, settings: ExperimentSettings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
        methods = settings.methods or ("daes-gate", "daes-tran", "autodis")
        chosen = {count_label(method, m): Variant(method, {"num_meta": m}) for method in methods for m in COUNTS}
        return chosen, {"methods": methods}

    def labels(self, result: ExperimentResult, method: str) -> list[str]:
        return [count_label(method, number) for number in COUNTS]

    def positions(self, result: ExperimentResult) -> Sequence[int]:
        return COUNTS

    def trend(self, result: ExperimentResult) -> Judgement:
        daes = _known(gain for method in _daes(result) for gain in self.whole_change(result, method))
        autodis = _known(self.whole_change(result, "autodis"))
        rises, falls = sum(gain > 0 for gain in daes), sum(gain < 0 for gain in autodis)
        return (most(rises, len(daes)), most(falls, len(autodis))), (
            f"From M = {COUNTS[0]} to {COUNTS[-1]} the AUC of DAES rises in {rises} of {len(daes)} cases, "
            f"that of AutoDis falls in {falls} of {len(autodis)}."
        )

    def further(self, result: ExperimentResult) -> str:
        trends = (
            f"{method_title(m)} {', '.join(fixed(gain, sign=True) for gain in self.whole_change(result, m))}"
            for m in result.results["methods"]
        )
        return f"Change in AUC from M = {COUNTS[0]} to {COUNTS[-1]}, by backbone: {'; '.join(trends)}."


def count_label(method: str, number: int) -> str:
    """The label of a method with this number of meta-embeddings."""
    return f"{method_title(method)}, M = {number}"


class FeatureCount(AgainstAutoDis):
    name = "feature-count"
    title = "Number of numerical features"
    what = "numerical features added one by one, DAES against AutoDis"
    claim = """
    Figure 5: starting from the 26 categorical fields of Criteo, every added numerical feature improves DAES, which is
    ahead of AutoDis throughout. (Numbers are only in the figure.)
    """
    differs = """
    Features are added in the order of the columns; the paper does not state its order. Without numerical features one
    model stands for all methods.
    """
    judged_by = """
    (1) DAES has a significantly higher AUC than AutoDis with the same features in most cases. (2) Most of the added
    features raise the AUC of DAES.
    """
    figure = "Numerical features added one by one"
    header = axis = "numerical features"

    def variants(self, settings: ExperimentSettings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
        methods, features = settings.methods or ("daes-gate", "autodis"), data.schema.numerical
        chosen = {
            _feature_label(method, number): Variant(method, numerical=features[:number])
            for number in range(len(features) + 1)
            # Without a numerical feature the method makes no difference: one model stands for all.
            for method in (methods if number else methods[:1])
        }
        return chosen, {"methods": methods, "features": features}

    def labels(self, result: ExperimentResult, method: str) -> list[str]:
        return [_feature_label(method, number) for number in self.positions(result)]

    def positions(self, result: ExperimentResult) -> Sequence[int]:
        return range(len(result.results["features"]) + 1)

    def gains(self, result: ExperimentResult, method: str) -> list[float]:
        """The change in AUC with each added feature, on all backbones, where it is known."""
        pairs = pairwise(self.labels(result, method))
        return _known(chain.from_iterable(changes(result, *pair) for pair in pairs))

    def trend(self, result: ExperimentResult) -> Judgement:
        gains = [gain for method in _daes(result) for gain in self.gains(result, method)]
        raised = sum(gain > 0 for gain in gains)
        return (most(raised, len(gains)),), f"{raised} of {len(gains)} added features raise the AUC of DAES."

    def further(self, result: ExperimentResult) -> str:
        sentences = []
        for method in result.results["methods"]:
            gains = self.gains(result, method)
            whole = ", ".join(fixed(gain, sign=True) for gain in self.whole_change(result, method))
            raised = f"{sum(gain > 0 for gain in gains)} of {len(gains)}"
            sentences.append(f"{method_title(method)}: {raised} added features raise the AUC, {whole} in all.")
        return " ".join(sentences)

    def more(self, result: ExperimentResult) -> str:
        return f"Features in the order in which they are added: {', '.join(result.results['features'])}."


def _feature_label(method: str, number: int) -> str:
    return f"{method_title(method)}, {number} numerical" if number else "categorical fields only"


def _daes(result: ExperimentResult) -> list[str]:
    """The forms of DAES among a result's methods."""
    return [method for method in result.results["methods"] if method.startswith("daes")]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]

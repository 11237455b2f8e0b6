"""Which fields should modulate: those on which the distributions of numbers depend, or others."""

from collections.abc import Mapping
from dataclasses import replace

from daes.distribution import ContextRanking, rank_context_fields, smallest_cardinality
from daes.formatting import count, fixed, p_value
from daes.paper.ablations import MODULATIONS, DotAblation
from daes.paper.experiment import ExperimentSettings, Findings, Judgement
from daes.paper.result import ExperimentResult
from daes.paper.scores import compare_pairs
from daes.paper.variants import Variant
from daes.stream.dataset import Dataset
from daes.table import markdown_table

CHOICES = ("significant", "smallest", "insignificant")
_FIELDS = 3
_RANKED_SHARE = {"stream": 0.5, "paper": 0.8}  # the rows that are not evaluated
_MOST_ROWS = 200_000


class ContextFields(DotAblation):
    name = "context"
    title = "Fields for modulation"
    what = "modulation by significant, by the smallest and by insignificant fields (Kruskal–Wallis, Wasserstein)"
    claim = """
    Figure 6: modulation by three significant fields (Kruskal–Wallis, then the inter-group Wasserstein distance)
    is better than by three insignificant ones. (Numbers are only in the figure.)
    """
    differs = """
    Fields are ranked on rows that are not evaluated, at most 200,000 of them: the first half (by the paper's protocol
    the first four fifths). With many rows nearly every field is significant; then the three weakest of the others
    represent the insignificant ones and are called that in the tables. The Wasserstein distance is taken between ranks,
    minus that of shuffled groups of the same size, otherwise the field with the most values would win. The paper's
    default, the three smallest fields, and no modulation are included for comparison.
    """
    judged_by = "Significant fields give a significantly higher AUC than the weakest in most cases."
    figure = "Which fields should modulate the numbers?"

    def variants(self, settings: ExperimentSettings, data: Dataset) -> tuple[Mapping[str, Variant], Findings]:
        ranking = _ranking(data, settings)
        contexts = {
            "significant": ranking.significant(_FIELDS),
            "smallest": smallest_cardinality({row.field: row.groups for row in ranking.rows}, _FIELDS),
            "insignificant": _weakest(ranking),
        }
        chosen = {"no modulation": Variant("daes-gate", {"beta": 0.0})}
        for kind in MODULATIONS:
            for choice, names in contexts.items():
                if names:
                    chosen[f"{kind}, {choice}"] = Variant(f"daes-{kind}", model={"context": names})
        fields = [vars(row) for row in ranking.rows]
        return chosen, {"contexts": contexts, "ranking": fields, "rows_ranked": ranking.rows_used}

    def judge(self, result: ExperimentResult) -> Judgement:
        pairs = [(f"{kind}, significant", f"{kind}, insignificant") for kind in MODULATIONS]
        fields = compare_pairs(result, [pair for pair in pairs if set(pair) <= result.results["scores"].keys()])
        return fields.parts, f"Significant fields against the weakest: {fields}"

    def further(self, result: ExperimentResult) -> str:
        scores, ranking = result.results["scores"], result.results["ranking"]
        pairs = [(f"{kind}, significant", "no modulation") for kind in MODULATIONS if f"{kind}, significant" in scores]
        weak = sum(not row["significant"] for row in ranking)
        against = f"Significant fields against no modulation: {compare_pairs(result, pairs)}"
        return f"{against} {weak} of {len(ranking)} fields are insignificant."

    def more(self, result: ExperimentResult) -> str:
        found = result.results
        chosen = [[choice, ", ".join(fields) or "none"] for choice, fields in found["contexts"].items()]
        fields = [
            [row["field"], count(row["cardinality"]), fixed(row["strength"]), p_value(row["p_value"]), significant]
            for row in found["ranking"]
            for significant in ["yes" if row["significant"] else "no"]
        ]
        return "\n\n".join(
            [
                markdown_table(["context", "fields"], chosen, names=2),
                "Fields by strength (Kruskal–Wallis, Holm-corrected; inter-group Wasserstein distance of ranks above "
                f"chance), from {count(found['rows_ranked'])} rows:",
                markdown_table(["field", "cardinality", "strength", "p", "significant"], fields),
            ]
        )

    def groups(self, result: ExperimentResult) -> dict[str, list[str]]:
        labels = list(result.results["scores"])
        by_choice = {choice: [label for label in labels if label.endswith(f", {choice}")] for choice in CHOICES}
        return {**by_choice, "none": ["no modulation"]}


def _ranking(data: Dataset, settings: ExperimentSettings) -> ContextRanking:
    """Fields by strength, from the first rows, which are not evaluated."""
    rows = data.head(settings.rows).count_rows()
    sample = data.sample(max(min(int(rows * _RANKED_SHARE[settings.protocol]), _MOST_ROWS), 1))
    return rank_context_fields(
        dict(zip(data.schema.numerical, sample.numerical.T, strict=True)),
        dict(zip(data.schema.categorical, sample.categorical.T, strict=True)),
    )


def _weakest(ranking: ContextRanking) -> tuple[str, ...]:
    """The weakest fields outside the chosen significant ones; fields with a single value are left out."""
    several = tuple(row for row in ranking.rows if row.groups > 1)
    return replace(ranking, rows=several).insignificant(_FIELDS)

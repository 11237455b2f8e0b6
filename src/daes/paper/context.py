"""Which fields should modulate: those that change the numbers' distributions, or those that do not."""

from typing import TYPE_CHECKING, Any

from daes.paper.data import DataSet
from daes.paper.experiment import TRAINING, Experiment, Findings, Means, Settings
from daes.paper.result import Result
from daes.paper.scores import compare_pairs, dot_figure, failures, how_trained, scores_table
from daes.paper.tables import count, fixed, scientific, table
from daes.paper.trials import ABLATION_BACKBONES, Variant, run_trials

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODULATIONS = ("gate", "tran")
CHOICES = ("significant", "smallest", "insignificant")
_FIELDS = 3
_TRAINING_SHARE = 0.8
_MOST_ROWS = 200_000


def run(settings: Settings, data: DataSet | None, means: Means) -> Findings:
    assert data is not None
    ranking = _ranking(data, settings.rows)
    contexts = {
        "significant": ranking.significant(_FIELDS),
        "smallest": _smallest(ranking),
        "insignificant": _weakest(ranking),
    }
    variants = {"no modulation": Variant("daes-gate", {"beta": 0.0})}
    for kind in MODULATIONS:
        for choice, fields in contexts.items():
            if fields:
                variants[f"{kind}, {choice}"] = Variant(f"daes-{kind}", model={"context": tuple(fields)})
    found = run_trials(settings, data, means, variants, ABLATION_BACKBONES)
    fields = [vars(row) for row in ranking.rows]
    return {**found, "contexts": contexts, "ranking": fields, "rows_ranked": ranking.rows_used}


def _ranking(data: DataSet, rows: int | None) -> Any:
    """Fields by strength, from the first four fifths of the rows."""
    from daes.distribution import rank_context_fields
    from daes.training.held import hold

    stream = data.open()
    assert stream.schema is not None
    length = data.length(rows)
    most = _MOST_ROWS if length is None else min(round(length * _TRAINING_SHARE), _MOST_ROWS)
    sample = hold(stream.source, stream.schema, max_rows=max(most, 1))
    assert sample is not None
    return rank_context_fields(
        dict(zip(stream.schema.numerical, sample.numerical.T, strict=True)),
        dict(zip(stream.schema.categorical, sample.categorical.T, strict=True)),
    )


def _smallest(ranking: Any) -> tuple[str, ...]:
    from daes.distribution import smallest_cardinality

    return smallest_cardinality({row.field: row.cardinality for row in ranking.rows}, _FIELDS)


def _weakest(ranking: Any) -> tuple[str, ...]:
    """Fields that fail the test, the weakest first; where there are too few, the weakest of those that pass."""
    useful = [row for row in ranking.rows if row.cardinality > 1]
    ordered = sorted(useful, key=lambda row: (row.significant, row.strength))
    return tuple(row.field for row in ordered[:_FIELDS])


def markdown(result: Result) -> str:
    found = result.results
    chosen = [[choice, ", ".join(fields) or "none"] for choice, fields in found["contexts"].items()]
    fields = [
        [row["field"], count(row["cardinality"]), fixed(row["strength"]), scientific(row["p_value"]), _yes(row)]
        for row in found["ranking"]
    ]
    return "\n\n".join(
        [
            how_trained(result),
            table(["context", "fields"], chosen, words=2),
            scores_table(found) + failures(found),
            "Fields by strength (Kruskal–Wallis, Holm-corrected; inter-group Wasserstein distance of ranks above "
            f"chance), from {count(found['rows_ranked'])} rows:",
            table(["field", "cardinality", "strength", "p", "significant"], fields),
        ]
    )


def _yes(row: Findings) -> str:
    return "yes" if row["significant"] else "no"


def verdict(result: Result) -> str:
    scores = result.results["scores"]
    pairs = [(f"{kind}, significant", f"{kind}, insignificant") for kind in MODULATIONS]
    known = [pair for pair in pairs if set(pair) <= scores.keys()]
    if not known:
        return "There were no significant fields to modulate by."
    none = [(f"{kind}, significant", "no modulation") for kind in MODULATIONS]
    weak = [row["field"] for row in result.results["ranking"] if not row["significant"]]
    return (
        f"{len(weak)} fields are insignificant. Significant against insignificant context: "
        f"{compare_pairs(result, known)} Significant context against none: {compare_pairs(result, none)}"
    )


def draw(result: Result) -> "Figure":
    labels = list(result.results["scores"])
    groups = {choice: {label: label for label in labels if label.endswith(f", {choice}")} for choice in CHOICES}
    return dot_figure(
        result, {**groups, "none": {"no modulation": "no modulation"}}, "Which fields should modulate the numbers?"
    )


EXPERIMENT = Experiment(
    name="context",
    title="Fields for modulation",
    what="modulation by significant, by the smallest and by insignificant fields (Kruskal–Wallis, Wasserstein)",
    claim="""
    Figure 6: modulation by three significant fields (Kruskal–Wallis, then the inter-group Wasserstein distance)
    is better than by three insignificant ones. (Numbers are only in the figure.)
    """,
    differs="""
    Fields are ranked on the first four fifths of the rows. With many rows nearly every field is significant;
    then the three weakest stand for the insignificant ones. The Wasserstein distance is taken between ranks and
    what shuffled groups of the same size show is subtracted, else the field with most values would win. The
    paper's default, the three smallest fields, and no modulation stand beside.
    """,
    run=run,
    markdown=markdown,
    verdict=verdict,
    draw=draw,
    data=("adstream", "flights"),
    uses=TRAINING,
)

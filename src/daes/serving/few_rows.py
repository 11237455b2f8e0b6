"""Which models compiled loops score as a whole, for a few rows at a time."""

from typing import Any

from daes import native
from daes.backbone import Backbone
from daes.embedding import DAES, CategoricalEmbedding
from daes.embedding.interpolation import blend_rows
from daes.model import CTRModel
from daes.native.scoring import FewRows

MOST_ROWS = 32
"""From there on matrix products of torch are quicker."""


def few_rows(model: CTRModel) -> FewRows | None:
    """The logits of a frozen model for a few rows, by one call, if its parts are those of the default.

    These are: DAES without a context, hashed tables, evidence without pairs, and a backbone that has a `network`.
    """
    numbers, table, counted = model.numerical, model.categorical, model.evidence
    network = model.backbone.network() if native.serves() and isinstance(model.backbone, Backbone) else None
    if network is None or type(model) is not CTRModel or type(table) is not CategoricalEmbedding:
        return None
    if (
        type(numbers) is not DAES
        or numbers.value_space
        or numbers.uses_context
        or numbers.linear not in (None, "value")
    ):
        return None
    plain = model.backbone.plain_dim - counted.dim
    if table.vocabulary is not None or counted.num_pairs or (plain and numbers.plain != ("score", "value")):
        return None
    known, rows = numbers.distributions, blend_rows(numbers.meta_embeddings.detach(), numbers.basis)
    assert known is not None
    options = counted.options
    values: dict[str, Any] = {
        "q": numbers.num_features,
        "p": table.num_fields,
        "d": model.dim,
        "K": known.num_knots,
        "M": rows.shape[1] - 1,
        "bins": options.bins,
        "counted_numbers": numbers.num_features if options.numbers else 0,
        "counted_categories": table.num_fields if options.categories else 0,
        "plain": plain,
        "knots": known.knots,
        "centre": known.centre,
        "scale": known.scale,
        "table": rows,
        "linear": None if numbers.linear is None else numbers.linear_weight,
        "missing": numbers.missing,
        "rows": table.weight,
        "edges": counted.edges,
        "first_order": network.linear,
        "evidence": counted.weight,
        "sizes": table._sizes,
        "offsets": table._offsets,
        "number_counts": counted.number_counts,
        "row_counts": counted.row_counts,
        "prior": counted.prior(),
        "strength": options.strength,
        "start": counted.base(),
    }
    return FewRows(network.layers, **values) if FewRows.serves(network.layers, values) else None

"""Choice of context fields: the categorical fields on which the distribution of a numerical feature depends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daes.choices import check_choice
from daes.distribution.base import Floats, Ints, check_non_negative, check_positive, check_values
from daes.distribution.groups import OrderedFeature, Space, pool_groups
from daes.extras import require

Correction = Literal["holm", "bonferroni", "bh"]
_MISSING = 0


@dataclass(frozen=True)
class ContextField:
    """Strength and significance of one categorical field."""

    field: str
    cardinality: int
    """Number of distinct values in the rows used, without missing."""
    groups: int
    """The same and, if a value is missing, one more."""
    strength: float
    """Mean over the features of the inter-group distance minus its value for shuffled rows."""
    p_value: float
    """The smallest corrected p-value among the features."""
    significant: bool
    features_affected: int


@dataclass(frozen=True, eq=False)
class ContextRanking:
    """Categorical fields as context of numerical features, best first: the significant before the others, by strength.

    **Shape.** `strengths` and `p_values` (corrected) are (fields, features), in the order of `rows` and `features`.
    """

    rows: tuple[ContextField, ...]
    features: tuple[str, ...]
    strengths: Floats
    p_values: Floats
    rows_used: int

    def significant(self, top: int = 3) -> tuple[str, ...]:
        """The strongest fields that pass the test, best first; fewer than `top` if fewer pass."""
        check_positive(top=top)
        return tuple(row.field for row in self.rows if row.significant)[:top]

    def insignificant(self, top: int = 3) -> tuple[str, ...]:
        """The last fields of the ranking, worst first: what `significant` is compared with in the paper.

        Fields that fail the test come first. On many rows every field may pass it; then these are the weakest ones.
        No field is in both groups.
        """
        taken = set(self.significant(top))
        return tuple(row.field for row in reversed(self.rows) if row.field not in taken)[:top]

    def __str__(self) -> str:
        width = max(len("field"), *(len(row.field) for row in self.rows))
        lines = [f"{'field':<{width}}  cardinality  strength   p-value  features affected"]
        lines += [
            f"{row.field:<{width}}  {row.cardinality:>11}  {row.strength:>8.4f}  {row.p_value:>8.2g}  "
            f"{row.features_affected} of {len(self.features)}"
            for row in self.rows
        ]
        return "\n".join(lines)


def rank_context_fields(
    numerical: Mapping[str, ArrayLike] | ArrayLike,
    categorical: Mapping[str, Any] | ArrayLike,
    *,
    names: Sequence[str] | None = None,
    alpha: float = 0.01,
    correction: Correction = "holm",
    min_group_size: int = 100,
    space: Space = "rank",
    sample: int | None = 100_000,
    seed: int = 0,
) -> ContextRanking:
    r"""Rank categorical fields by how much the distribution of the numerical features depends on them.

    For each pair of a field and a feature, the rows where the feature is finite are grouped by the field's value.

    *Significance*: the Kruskal–Wallis test (corrected for ties); its p-values are corrected for the many pairs tested.
    A field is significant if any of its corrected p-values is below `alpha`.

    *Strength*: the inter-group distance, less the same distance after the feature's values were shuffled over the rows,

    $$ \sum_g \frac{n_g}{n} W_1(F_g, F) \;-\; \sum_g \frac{n_g}{n} W_1(\tilde F_g, F), \qquad
       W_1(F_g, F) = \int |F_g(u) - F(u)| \, du, $$

    where F is the feature's distribution over all groups, $F_g$ that in group g and $\tilde F_g$ that in a random group
    of the same size. Small groups lie far from F by chance; without the second term the field with the most values
    would win. It is drawn once, from `seed`. An uninformative field has strength 0 up to noise; the strength of an
    informative one is estimated more conservatively, the smaller its groups are. A field's strength is the mean over
    all features.

    Args:
        numerical: (N, q) floats, or a mapping (or data frame) of names to N values. NaN and ±inf are left out.
        categorical: (N, p) ids, or a mapping (or data frame) of names to N ids or strings. Missing (None, NaN, or the
            id 0 that batches use) is a group like any other.
        names: names of the fields of a categorical array; "0", "1", … if not given.
        alpha: level of significance.
        correction: "holm" and "bonferroni" bound the chance of one false finding, "bh" (Benjamini–Hochberg) the
            expected fraction of false ones.
        min_group_size: groups with fewer values of the feature are pooled into one.
        space: "rank" measures u by the feature's mid-ranks over n, so that features are comparable and heavy tails
            harmless; "value" by its values over their standard deviation.
        sample: at most this many rows are used, drawn uniformly from `seed`; None for all.
        seed: of the sample and the shuffle.

    A pair that cannot be tested (a feature that is constant or all missing, a field with one group) has strength 0 and
    p-value 1 and does not count as a test.

    >>> random = np.random.default_rng(0)
    >>> device, user = random.integers(1, 4, size=5000), random.integers(1, 1000, size=5000)
    >>> price = random.lognormal(mean=device)
    >>> ranking = rank_context_fields({"price": price}, {"user": user, "device": device}, min_group_size=5)
    >>> ranking.significant()
    ('device',)
    >>> print(ranking)
    field   cardinality  strength   p-value  features affected
    device            3    0.1586         0  1 of 1
    user            994    0.0026       0.3  0 of 1
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha!r}")
    check_choice("correction", correction, get_args(Correction))
    check_choice("space", space, get_args(Space))
    check_positive(min_group_size=min_group_size)
    check_non_negative(seed=seed)
    chi2 = require("scipy.stats").chi2
    columns = _columns("numerical", numerical, None)
    features = {name: check_values(column, f"numerical column {name!r}") for name, column in columns.items()}
    fields = _columns("categorical", categorical, names)
    random = np.random.default_rng(seed)
    picked = np.arange(_common_length([*features.items(), *fields.items()]))
    if sample is not None:
        check_positive(sample=sample)
        if sample < picked.size:
            picked = np.sort(random.choice(picked.size, size=sample, replace=False, shuffle=False))
    shuffle_seed = int(random.integers(2**63))

    codes = {name: _codes(name, column[picked]) for name, column in fields.items()}
    strengths = np.zeros((len(fields), len(features)))
    statistics = np.zeros_like(strengths)
    freedom = np.zeros_like(strengths)
    for k, column in enumerate(features.values()):
        feature = OrderedFeature(column[picked], space)
        if feature.distinct < 2:
            continue
        shuffle = np.random.default_rng(shuffle_seed).permutation(feature.size)
        for f, ids in enumerate(codes.values()):
            groups = pool_groups(ids[feature.order], min_group_size)
            sizes = np.bincount(groups)
            if sizes.size < 2:
                continue
            statistics[f, k] = feature.kruskal_wallis(groups, sizes)
            freedom[f, k] = sizes.size - 1
            strengths[f, k] = feature.distance(groups, sizes) - feature.distance(groups[shuffle], sizes)

    tested = freedom > 0
    p_values = np.ones_like(strengths)
    p_values[tested] = correct_p_values(chi2.sf(statistics[tested], freedom[tested]), correction)
    rows = [
        ContextField(
            field=name,
            cardinality=int(np.unique(codes[name]).size - (codes[name] == _MISSING).any()),
            groups=np.unique(codes[name]).size,
            strength=float(strengths[f].mean()),
            p_value=float(p_values[f].min()),
            significant=bool((p_values[f] < alpha).any()),
            features_affected=int((p_values[f] < alpha).sum()),
        )
        for f, name in enumerate(fields)
    ]
    order = sorted(range(len(rows)), key=lambda f: (not rows[f].significant, -rows[f].strength))
    return ContextRanking(
        rows=tuple(rows[f] for f in order),
        features=tuple(features),
        strengths=strengths[order],
        p_values=p_values[order],
        rows_used=picked.size,
    )


def smallest_cardinality(cardinalities: Mapping[str, int], count: int = 3) -> tuple[str, ...]:
    """The paper's default context: the `count` fields of smallest cardinality, smallest first.

    Ties are broken by order. A field with fewer than two values carries no information and is left out, so there may be
    fewer than `count`.

    Args:
        cardinalities: number of distinct values of each field.
        count: how many fields.

    >>> smallest_cardinality({"site": 4737, "device": 4, "weekday": 7, "version": 1, "banner": 7})
    ('device', 'weekday', 'banner')
    """
    check_positive(count=count)
    for name, cardinality in cardinalities.items():
        if isinstance(cardinality, bool) or not isinstance(cardinality, int | np.integer) or cardinality < 0:
            raise ValueError(f"cardinalities must be counts, got {cardinality!r} for {name}")
    useful = [name for name, cardinality in cardinalities.items() if cardinality >= 2]
    return tuple(sorted(useful, key=lambda name: cardinalities[name])[:count])


def correct_p_values(p: Floats, correction: Correction) -> Floats:
    """p-values adjusted for their number. (Of these corrections, scipy has only Benjamini–Hochberg.)"""
    count = p.size
    if correction == "bonferroni":
        return np.minimum(p * count, 1.0)
    order = np.argsort(p, kind="stable")
    if correction == "holm":
        ascending = np.maximum.accumulate(p[order] * np.arange(count, 0, -1))
    else:
        ascending = np.minimum.accumulate((p[order] * count / np.arange(1, count + 1))[::-1])[::-1]
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(ascending, 1.0)
    return corrected


def _columns(argument: str, table: Any, names: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """A table's columns by name, each a 1-D array."""
    if hasattr(table, "keys"):
        if names is not None:
            raise ValueError(f"names must be None if {argument} has column names, got {names!r}")
        columns = {str(name): np.asarray(table[name]) for name in list(table.keys())}
    else:
        array = np.asarray(table)
        if array.ndim != 2:
            raise ValueError(f"{argument} must be a mapping or two-dimensional, got shape {array.shape}")
        if names is not None and (len(set(names)) != len(names) or len(names) != array.shape[1]):
            raise ValueError(f"names must be {array.shape[1]} distinct names, got {names!r}")
        columns = {name: array[:, k] for k, name in enumerate(names or map(str, range(array.shape[1])))}
    if not columns:
        raise ValueError(f"{argument} must have at least one column, got none")
    for name, column in columns.items():
        if column.ndim != 1:
            raise ValueError(f"{argument} column {name!r} must be one-dimensional, got shape {column.shape}")
    return columns


def _common_length(columns: Sequence[tuple[str, NDArray[Any]]]) -> int:
    (first, column), *others = columns
    for name, other in others:
        if other.size != column.size:
            raise ValueError(
                f"all columns must have the same length; {first!r} has {column.size}, {name!r} {other.size}"
            )
    if not column.size:
        raise ValueError("numerical and categorical must have at least one row, got none")
    return column.size


def _codes(name: str, ids: NDArray[Any]) -> Ints:
    """Small integers, one for each distinct id; all forms of missing are `_MISSING`, the smallest."""
    kind = ids.dtype.kind
    if kind in "biufmM":
        numbers = np.unique(ids, return_inverse=True)[1].astype(np.int64, copy=False) + 1
        missing = ids == 0 if kind in "iu" else np.isnan(ids) if kind in "fmM" else False
        return np.where(missing, _MISSING, numbers)
    if kind not in "OUST":
        raise TypeError(f"categorical column {name!r} must hold ids or strings, got dtype {ids.dtype}")
    values = ids.tolist()
    codes: dict[Any, int] = {}
    try:
        for value in dict.fromkeys(values):
            codes[value] = _MISSING if _is_missing(value) else len(codes) + 1
    except TypeError as error:
        raise TypeError(f"categorical column {name!r} must hold ids or strings, got {error}") from None
    return np.fromiter(map(codes.__getitem__, values), dtype=np.int64, count=len(values))


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return True
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and value == 0

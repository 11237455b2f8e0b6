import sys
from typing import Any, get_args

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from daes.distribution.context import (
    Correction,
    _codes,
    correct_p_values,
    rank_context_fields,
    smallest_cardinality,
)
from daes.distribution.groups import OrderedFeature, pool_groups
from daes.extras import MissingExtraError


def slow_distance(column: Any, groups: Any, space: str) -> float:
    values, groups = column[np.isfinite(column)], groups[np.isfinite(column)]
    places = stats.rankdata(values) / values.size if space == "rank" else values / values.std()
    total = 0.0
    for group in np.unique(groups):
        inside = places[groups == group]
        total += inside.size / places.size * stats.wasserstein_distance(inside, places)
    return total


@st.composite
def grouped_columns(draw: st.DrawFn) -> tuple[Any, Any]:
    size = draw(st.integers(6, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    column = random.lognormal(sigma=2, size=size)
    column = draw(st.sampled_from([column, np.floor(column), np.sign(column - 1)]))
    column[random.random(size) < 0.2] = np.nan
    column[:2] = 0.5, 1.5
    groups = random.integers(0, draw(st.integers(1, 8)), size=size)
    groups[:2] = 0, 1
    return column, groups


@pytest.mark.parametrize("space", ["rank", "value"])
@given(grouped_columns())
@settings(max_examples=150, deadline=None)
def test_distance_is_the_weighted_mean_of_wasserstein_distances(space: Any, data: tuple[Any, Any]) -> None:
    column, groups = data
    feature = OrderedFeature(column, space)
    dense = pool_groups(groups[feature.order], 1)
    assert feature.distance(dense, np.bincount(dense)) == pytest.approx(slow_distance(column, groups, space), abs=1e-12)


@given(grouped_columns())
@settings(max_examples=150, deadline=None)
def test_the_test_is_that_of_kruskal_and_wallis(data: tuple[Any, Any]) -> None:
    column, groups = data
    finite = np.isfinite(column)
    expected = stats.kruskal(*(column[finite & (groups == g)] for g in np.unique(groups[finite])))
    feature = OrderedFeature(column, "rank")
    dense = pool_groups(groups[feature.order], 1)
    assert feature.kruskal_wallis(dense, np.bincount(dense)) == pytest.approx(expected.statistic, abs=1e-10)
    ranking = rank_context_fields({"x": column}, {"field": groups}, min_group_size=1)
    # Near H = 0 the p-value falls like √H, which turns SciPy's rounding of H (a difference of sums) into 1e-7.
    assert ranking.p_values == pytest.approx(np.array([[expected.pvalue]]), abs=1e-6)
    assert ranking.rows[0].p_value == ranking.p_values[0, 0]


def test_strength_has_its_closed_form() -> None:
    """The lower and the upper half of U[0, 1]: ∫|F_g − F| is 1/4 for both, and √12 times as much over the deviation."""
    column = np.random.default_rng(0).permutation(np.linspace(0, 1, 40_001))
    half = np.where(column < 0.5, "low", "high")
    by_rank = rank_context_fields({"x": column}, {"half": half})
    assert by_rank.rows[0].strength == pytest.approx(0.25, abs=0.005)
    by_value = rank_context_fields({"x": column}, {"half": half}, space="value")
    assert by_value.rows[0].strength == pytest.approx(0.25 * np.sqrt(12), abs=0.02)


@given(st.lists(st.floats(0, 1), min_size=0, max_size=30))
@settings(max_examples=100, deadline=None)
def test_corrections(given: list[float]) -> None:
    p = np.array(given)
    holm = [max(other * sum(third >= other for third in given) for other in given if other <= value) for value in given]
    assert correct_p_values(p, "holm") == pytest.approx([min(1.0, value) for value in holm])
    assert correct_p_values(p, "bonferroni") == pytest.approx([min(1.0, value * p.size) for value in given])
    if given:
        assert correct_p_values(p, "bh") == pytest.approx(stats.false_discovery_control(p))


def informed(size: int = 20_000, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two features, one of them depending on a field of three values; fields of chance of all cardinalities."""
    random = np.random.default_rng(seed)
    device = random.integers(1, 4, size=size)
    numerical = {"price": random.lognormal(mean=0.3 * device), "age": random.normal(size=size)}
    categorical = {f"chance{k}": random.integers(1, k + 1, size=size) for k in (2, 50, 1000, 10_000)}
    return numerical, {**categorical, "device": device}


@pytest.mark.parametrize("space", ["rank", "value"])
@pytest.mark.parametrize("min_group_size", [1, 5, 100])
def test_many_values_do_not_make_a_field_strong(min_group_size: int, space: Any) -> None:
    for seed in range(3):
        numerical, categorical = informed(seed=seed)
        ranking = rank_context_fields(numerical, categorical, min_group_size=min_group_size, space=space)
        assert ranking.rows[0].field == "device"
        others = [row.strength for row in ranking.rows[1:]]
        assert max(np.abs(others)) < 0.15 * ranking.rows[0].strength


def test_without_subtracting_chance_many_values_would_win() -> None:
    numerical, categorical = informed(2000)
    by_chance = slow_distance(numerical["price"], categorical["chance1000"], "rank")
    assert by_chance > 2 * slow_distance(numerical["price"], categorical["device"], "rank")


def test_only_what_matters_is_significant() -> None:
    numerical, categorical = informed()
    for correction in get_args(Correction):
        ranking = rank_context_fields(numerical, categorical, correction=correction)
        assert ranking.significant() == ("device",)
        assert ranking.rows[0].features_affected == 1
        assert ranking.features == ("price", "age")
        assert (ranking.p_values < 0.01).tolist() == [[True, False]] + [[False, False]] * 4
        assert ranking.strengths[0, 0] == pytest.approx(2 * ranking.rows[0].strength, abs=0.005)


def test_chance_is_found_significant_as_rarely_as_promised() -> None:
    """Holm at level 0.1 on 20 tests of nothing: one false finding or more in at most a tenth of the runs."""
    random = np.random.default_rng(5)
    false = 0
    for _ in range(200):
        categorical = random.integers(0, 4, size=(300, 5))
        ranking = rank_context_fields(random.normal(size=(300, 4)), categorical, alpha=0.1, min_group_size=10)
        false += bool(ranking.significant())
    assert 3 <= false <= 20 + 3 * np.sqrt(18)


def test_the_two_groups_of_the_paper() -> None:
    random = np.random.default_rng(1)
    size = 20_000
    fields = {f"f{k}": random.integers(1, 4, size=size) for k in range(8)}
    column = sum(0.1 * k * fields[f"f{k}"] for k in range(8)) + random.normal(size=size)
    ranking = rank_context_fields({"x": column}, fields)
    assert ranking.significant() == ("f7", "f6", "f5")
    assert ranking.insignificant() == ("f0", "f1", "f2")
    assert not ranking.rows[-1].significant
    assert ranking.rows[-2].significant  # fewer than three fail: the weakest that pass fill up
    assert ranking.significant(top=20) == tuple(f"f{k}" for k in range(7, 0, -1))
    assert ranking.insignificant(top=20) == ("f0",)
    assert str(ranking).splitlines()[1].split()[:2] == ["f7", "3"]
    with pytest.raises(ValueError, match="top must be a positive integer, got 0"):
        ranking.significant(top=0)


def test_significant_fields_come_first_even_if_weaker() -> None:
    random = np.random.default_rng(0)
    weak = random.integers(0, 2, size=50_000)
    column = 0.1 * weak + random.normal(size=50_000)
    many = random.integers(0, 2, size=50_000)
    # A difference in spread alone is invisible to the test, and no less a distance.
    column[many == 0] *= 2
    ranking = rank_context_fields({"x": column}, {"many": many, "weak": weak})
    assert [row.field for row in ranking.rows] == ["weak", "many"]
    assert ranking.rows[0].strength < ranking.rows[1].strength


def test_rare_groups_are_pooled() -> None:
    assert pool_groups(np.array([3, 1, 1, 0, 3, 3, 7]), 2).tolist() == [1, 0, 0, 2, 1, 1, 2]
    assert pool_groups(np.array([3, 1, 1, 3]), 2).tolist() == [1, 0, 0, 1]
    assert pool_groups(np.array([5, 1, 2]), 2).tolist() == [0, 0, 0]
    column = np.arange(300.0)
    ids = np.where(column < 150, 1, column)
    pooled = rank_context_fields({"x": column}, {"id": ids}, min_group_size=100)
    halves = rank_context_fields({"x": column}, {"id": column < 150}, min_group_size=100)
    assert pooled.p_values == halves.p_values
    assert pooled.strengths == halves.strengths
    assert pooled.rows[0].cardinality == 151
    nothing_left = rank_context_fields({"x": column}, {"id": column}, min_group_size=2)
    assert nothing_left.rows[0].p_value == 1
    assert nothing_left.rows[0].strength == 0


def test_group_sizes_are_counted_where_the_feature_is_known() -> None:
    column = np.arange(200.0)
    column[100:195] = np.nan
    ranking = rank_context_fields({"x": column}, {"half": np.arange(200) < 100}, min_group_size=10)
    assert ranking.rows[0].p_value == pytest.approx(stats.kruskal(column[:100], column[195:]).pvalue)
    lone = rank_context_fields({"x": column}, {"id": np.arange(200) // 5}, min_group_size=10)
    assert lone.rows[0].p_value == 1


def test_a_missing_category_is_a_group_of_its_own() -> None:
    random = np.random.default_rng(0)
    missing = random.random(2000) < 0.3
    column = random.normal(size=2000) + missing
    spellings: dict[str, Any] = {
        "none": [None if m else "a" for m in missing],
        "nan": [float("nan") if m else "a" for m in missing],
        "float": np.where(missing, np.nan, 4.0),
        "zero": np.where(missing, 0, 7),
        "mixed": np.array(
            [[None, 0, np.nan, np.float32("nan")][i % 4] if m else "a" for i, m in enumerate(missing)], object
        ),
        "arrow": pa.array([None if m else "a" for m in missing]),
        "pandas": pd.Series(["a"]).repeat(2000).mask(missing, None).astype("category"),
        "polars": pl.Series([None if m else "a" for m in missing]),
    }
    ranking = rank_context_fields({"x": column}, spellings)
    assert {row.groups for row in ranking.rows} == {2}
    counts = {row.field: row.cardinality for row in ranking.rows}
    assert counts == dict.fromkeys(spellings, 1) | {"nan": 2}  # which numpy makes the text "nan"
    assert ranking.strengths == pytest.approx(np.full((8, 1), ranking.rows[0].strength), rel=1e-12)
    assert all(row.significant for row in ranking.rows)


def test_ids_of_any_kind_give_the_same_groups() -> None:
    ids = np.random.default_rng(0).integers(1, 40, size=500)
    expected = _codes("id", ids)
    for same in (ids.astype(str), ids.astype("S"), ids.astype(object), ids.astype(np.float32), ids.astype("M8[s]")):
        found = _codes("id", same)
        assert (
            len(set(zip(expected.tolist(), found.tolist(), strict=True)))
            == np.unique(ids).size
            == np.unique(found).size
        )
    booleans = np.array([True, False, None, False, True], dtype=object)
    assert np.unique(_codes("flag", booleans)).size == 3


def test_arrays_mappings_and_frames_agree() -> None:
    numerical, categorical = informed(2000)
    expected = rank_context_fields(numerical, categorical)
    frames = rank_context_fields(pd.DataFrame(numerical), pd.DataFrame(categorical))
    arrays = rank_context_fields(
        np.stack(list(numerical.values()), axis=1),
        np.stack(list(categorical.values()), axis=1),
        names=list(categorical),
    )
    assert expected.rows == frames.rows == arrays.rows
    assert frames.features == ("price", "age")
    assert arrays.features == ("0", "1")
    unnamed = rank_context_fields(np.ones((5, 1)), np.ones((5, 2), dtype=np.int64))
    assert [row.field for row in unnamed.rows] == ["0", "1"]


def test_columns_that_say_nothing_are_not_tests() -> None:
    random = np.random.default_rng(0)
    size = 1000
    group = random.integers(0, 2, size=size)
    column = random.normal(size=size) + 0.1 * group
    numerical = {
        "x": column,
        "constant": np.full(size, 3.0),
        "missing": np.full(size, np.nan),
        "infinite": np.full(size, np.inf),
        "lone": np.where(np.arange(size) == 0, 1.0, np.nan),
    }
    categorical = {"one": np.full(size, "a"), "two": group, "two again": group}
    ranking = rank_context_fields(numerical, categorical, correction="bonferroni")
    alone = rank_context_fields({"x": column}, {"two": group})
    assert ranking.rows[0].field == "two"
    assert ranking.p_values[0, 0] == pytest.approx(2 * alone.p_values[0, 0])
    assert ranking.p_values[:, 1:].tolist() == [[1.0] * 4] * 3
    assert ranking.strengths[:, 1:].tolist() == [[0.0] * 4] * 3
    one = next(row for row in ranking.rows if row.field == "one")
    assert (one.cardinality, one.strength, one.p_value, one.significant, one.features_affected) == (1, 0, 1, False, 0)


def test_one_row_and_nothing_but_missing_are_no_error() -> None:
    for column in ([1.0], [np.nan]):
        ranking = rank_context_fields({"x": column}, {"id": ["a"]})
        assert ranking.significant() == ()
        assert ranking.insignificant() == ("id",)


def test_rank_space_does_not_see_a_monotone_transform() -> None:
    numerical, categorical = informed(5000)
    ranking = rank_context_fields({"x": numerical["price"]}, categorical)
    logarithm = rank_context_fields({"x": np.log(numerical["price"])}, categorical)
    assert ranking.rows == logarithm.rows
    huge = rank_context_fields({"x": numerical["price"] * 1e300}, categorical, space="value")
    usual = rank_context_fields({"x": numerical["price"]}, categorical, space="value")
    assert huge.strengths == pytest.approx(usual.strengths)


def test_a_sample_of_rows_is_enough_and_repeatable() -> None:
    numerical, categorical = informed()
    first = rank_context_fields(numerical, categorical, sample=5000, seed=3)
    second = rank_context_fields(numerical, categorical, sample=5000, seed=3)
    other = rank_context_fields(numerical, categorical, sample=5000, seed=4)
    assert first.rows_used == 5000
    assert np.array_equal(first.strengths, second.strengths)
    assert first.rows == second.rows
    assert first.rows != other.rows
    assert first.significant() == other.significant() == ("device",)
    everything = rank_context_fields(numerical, categorical, sample=None)
    assert everything.rows == rank_context_fields(numerical, categorical, sample=20_000).rows
    assert everything.rows_used == 20_000


@pytest.mark.parametrize(
    ("numerical", "categorical", "options", "message"),
    [
        ({"x": [1.0]}, {"c": [1, 2]}, {}, "columns must have the same length; 'x' has 1, 'c' 2"),
        (np.ones((2, 1)), np.ones((3, 1), int), {}, "same length; '0' has 2, '0' 3"),
        ({}, {"c": [1]}, {}, "numerical must have at least one column"),
        ({"x": [1.0]}, {}, {}, "categorical must have at least one column"),
        ({"x": []}, {"c": []}, {}, "must have at least one row"),
        ({"x": ["a"]}, {"c": [1]}, {}, "numerical column 'x' must be numeric, got dtype <U1"),
        ({"x": [[1.0]]}, {"c": [1]}, {}, r"numerical column 'x' must be one-dimensional, got shape \(1, 1\)"),
        ({"x": [1.0]}, {"c": [1j]}, {}, "categorical column 'c' must hold ids or strings, got dtype complex128"),
        ({"x": [1.0]}, {"c": np.array([{}], object)}, {}, "categorical column 'c' must hold ids.*unhashable"),
        ([1.0], {"c": [1]}, {}, r"numerical must be a mapping or two-dimensional, got shape \(1,\)"),
        ({"x": [1.0]}, [[1, 2]], {"names": ["a"]}, r"names must be 2 distinct names, got \['a'\]"),
        ({"x": [1.0]}, [[1, 2]], {"names": ["a", "a"]}, "names must be 2 distinct names"),
        ({"x": [1.0]}, {"c": [1]}, {"names": ["c"]}, "names must be None if categorical has column names"),
        ({"x": [1.0]}, {"c": [1]}, {"alpha": 1.0}, "alpha must lie between 0 and 1, got 1.0"),
        ({"x": [1.0]}, {"c": [1]}, {"correction": "none"}, "correction must be one of holm, bonferroni, bh, got"),
        ({"x": [1.0]}, {"c": [1]}, {"space": "log"}, "space must be one of rank, value, got 'log'"),
        ({"x": [1.0]}, {"c": [1]}, {"min_group_size": 0}, "min_group_size must be a positive integer"),
        ({"x": [1.0]}, {"c": [1]}, {"seed": -1}, "seed must be a non-negative integer, got -1"),
        ({"x": [1.0]}, {"c": [1]}, {"sample": 0}, "sample must be a positive integer, got 0"),
    ],
)
def test_bad_input_is_an_error(numerical: Any, categorical: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        rank_context_fields(numerical, categorical, **options)


def test_without_scipy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(MissingExtraError, match=r"daes\[stats\]"):
        rank_context_fields({"x": [1.0]}, {"c": [1]})


def test_smallest_cardinality() -> None:
    assert smallest_cardinality({"a": 9, "b": 2, "c": 1, "d": 0, "e": 9, "f": 3}) == ("b", "f", "a")
    fields = {"a": 9, "b": 2, "c": 1, "d": 0, "e": 9, "f": np.int64(3)}
    assert smallest_cardinality(fields, count=4) == ("b", "f", "a", "e")
    assert smallest_cardinality({}) == smallest_cardinality({"a": 1}) == ()
    with pytest.raises(ValueError, match="cardinalities must be counts, got -1 for b"):
        smallest_cardinality({"a": 3, "b": -1})
    with pytest.raises(ValueError, match=r"cardinalities must be counts, got 2\.5 for a"):
        smallest_cardinality({"a": 2.5})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="count must be a positive integer, got 0"):
        smallest_cardinality({"a": 3}, count=0)

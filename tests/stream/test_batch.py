import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daes.stream.batch import BadValues, Batch, batch_from_table
from daes.stream.hashing import hash_text
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price", "age"), ("city", "hour"), time="at", weight="w")
TABLE = pa.table(
    {
        "hour": pa.array([3, None, 5], pa.int8()),
        "click": [0, 1, 0],
        "age": pa.array([1, 2, None], pa.int32()),
        "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
        "city": ["Bern", "", None],
        "unused": ["x", "y", "z"],
        "w": [1.0, 0.0, 2.5],
        "price": [0.5, None, float("inf")],
    }
)
NUMBERS = Schema(None, ("x",), ())
CATEGORIES = Schema(None, (), ("c",))


def numbers(values: Any) -> list[float]:
    return batch_from_table(pa.table({"x": values}), NUMBERS).numerical[:, 0].tolist()


def categories(values: Any) -> list[int]:
    return batch_from_table(pa.table({"c": values}), CATEGORIES).categorical[:, 0].tolist()


def with_column(name: str, values: Any) -> pa.Table:
    return TABLE.set_column(TABLE.schema.get_field_index(name), name, values)


def random_batch(rows: int, seed: int = 0, **absent: None) -> Batch:
    generator = np.random.default_rng(seed)
    arrays = {
        "label": generator.integers(0, 2, rows).astype(np.float32),
        "weight": generator.random(rows, dtype=np.float32),
        "time": generator.integers(0, 100, rows),
        **absent,
    }
    numerical = generator.standard_normal((rows, 3), dtype=np.float32)
    numerical[generator.random((rows, 3)) < 0.2] = np.nan
    return Batch(numerical, generator.integers(0, 5, (rows, 2)), **arrays)


class TestBatch:
    def test_rows(self) -> None:
        batch = random_batch(10)
        assert len(batch) == 10
        part = batch[2:7:2]
        assert len(part) == 3
        assert np.shares_memory(part.numerical, batch.numerical)
        np.testing.assert_array_equal(part.numerical, batch.numerical[[2, 4, 6]])
        np.testing.assert_array_equal(part.time, batch.time[[2, 4, 6]])
        assert batch[np.array([2, 4, 6])].equals(part)
        assert batch[np.isin(np.arange(10), [2, 4, 6])].equals(part)
        assert len(batch[10:]) == 0

    def test_absent_parts_stay_absent(self) -> None:
        batch = random_batch(4, label=None, weight=None, time=None)
        assert batch[:2].label is None
        assert Batch.concat([batch, batch]).weight is None

    @given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    def test_any_split_concatenates_to_the_whole(self, sizes: list[int]) -> None:
        whole = random_batch(sum(sizes))
        ends = np.cumsum(sizes)
        parts = [whole[end - size : end] for size, end in zip(sizes, ends.tolist(), strict=True)]
        assert Batch.concat(parts).equals(whole)

    def test_equals_sees_every_difference(self) -> None:
        batch = random_batch(6)
        assert batch.equals(random_batch(6))
        assert not batch.equals(batch[:5])
        assert not batch.equals(random_batch(6, label=None))
        for name in ("numerical", "categorical", "label", "weight", "time"):
            changed = {part: getattr(batch, part) for part in ("numerical", "categorical", "label", "weight", "time")}
            changed[name] = changed[name].copy()
            changed[name][-1] = 77
            assert not batch.equals(Batch(**changed)), name

    def test_refuses_what_is_not_a_batch(self) -> None:
        good = random_batch(3)
        with pytest.raises(TypeError, match=r"numerical must be a float32 array .* float64 \(3, 3\)"):
            Batch(good.numerical.astype(np.float64), good.categorical)
        with pytest.raises(TypeError, match=r"categorical must be a int64 array of shape \(B, columns\)"):
            Batch(good.numerical, good.categorical[:, 0])
        with pytest.raises(TypeError, match=r"label must be .*list"):
            Batch(good.numerical, good.categorical, [0, 1, 0])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"label must have 3 rows"):
            Batch(good.numerical, good.categorical, np.zeros(2, np.float32))
        with pytest.raises(TypeError, match=r"batch\[i : i \+ 1\]"):
            good[1]  # type: ignore[index]

    def test_concat_refuses_different_columns(self) -> None:
        batch = random_batch(3)
        with pytest.raises(ValueError, match="batches must not be empty"):
            Batch.concat([])
        with pytest.raises(ValueError, match=r"same columns.*batch 1"):
            Batch.concat([batch, random_batch(3, label=None)])
        with pytest.raises(ValueError, match=r"same columns.*batch 1"):
            Batch.concat(
                [batch, Batch(batch.numerical[:, :1], batch.categorical, batch.label, batch.weight, batch.time)]
            )


class TestFromTable:
    @pytest.mark.parametrize("form", ["table", "chunked", "record batch"])
    def test_columns_in_the_schemas_order(self, form: str) -> None:
        table = {
            "table": TABLE,
            "chunked": pa.concat_tables([TABLE[:1], TABLE[1:]]),
            "record batch": TABLE.to_batches()[0],
        }[form]
        batch = batch_from_table(table, SCHEMA)
        np.testing.assert_array_equal(batch.numerical, np.array([[0.5, 1], [np.nan, 2], [np.inf, np.nan]], np.float32))
        expected = [[hash_text("Bern"), hash_text("3")], [0, 0], [0, hash_text("5")]]
        assert batch.categorical.tolist() == expected
        assert batch.label is not None
        assert batch.label.tolist() == [0, 1, 0]
        assert batch.weight is not None
        assert batch.weight.tolist() == [1, 0, 2.5]
        assert batch.time is not None
        assert batch.time.tolist() == [0, 1000, 2000]
        assert batch.numerical.flags.c_contiguous
        assert batch.categorical.flags.c_contiguous

    def test_any_slicing_gives_the_same_rows(self) -> None:
        whole = batch_from_table(TABLE, SCHEMA)
        for start in range(3):
            for stop in range(start, 4):
                assert batch_from_table(TABLE[start:stop], SCHEMA).equals(whole[start:stop])

    def test_no_rows(self) -> None:
        for table in (TABLE[:0], pa.table({name: pa.nulls(0) for name in TABLE.column_names})):
            batch = batch_from_table(table, SCHEMA)
            assert len(batch) == 0
            assert (batch.numerical.shape, batch.categorical.shape) == ((0, 2), (0, 2))
            assert batch.label is not None
            assert len(batch.label) == 0

    def test_label_is_needed_where_required(self) -> None:
        unlabelled = TABLE.drop_columns(["click"])
        with pytest.raises(ValueError, match="no column 'click'"):
            batch_from_table(unlabelled, SCHEMA)
        assert batch_from_table(unlabelled, SCHEMA, require_label=False).label is None
        assert batch_from_table(TABLE, SCHEMA, require_label=False).label is not None
        assert batch_from_table(TABLE, Schema(None, ("price",), ())).label is None

    def test_missing_column(self) -> None:
        for name in ("price", "city", "at", "w"):
            renamed = TABLE.rename_columns([name + "s" if column == name else column for column in TABLE.column_names])
            with pytest.raises(ValueError, match=rf"no column '{name}'(; did you mean '{name}s'\?|\.)"):
                batch_from_table(renamed, SCHEMA)

    def test_repeated_column(self) -> None:
        with pytest.raises(ValueError, match="'price' occurs 2 times"):
            batch_from_table(TABLE.append_column("price", TABLE["price"]), SCHEMA)

    def test_not_a_table(self) -> None:
        with pytest.raises(TypeError, match="got dict"):
            batch_from_table({}, SCHEMA)


class TestNumerical:
    @pytest.mark.parametrize(
        "kind",
        [pa.int8(), pa.uint8(), pa.int16(), pa.uint32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32()],
    )
    def test_every_type_of_number(self, kind: pa.DataType) -> None:
        np.testing.assert_array_equal(numbers(pa.array([1, None, 3], kind)), [1, np.nan, 3])
        np.testing.assert_array_equal(numbers(pa.array([1, 2, None, 3], kind)[1:]), [2, np.nan, 3])
        assert numbers(pa.array([1, 3], kind)) == [1, 3]

    def test_others_that_are_numbers(self) -> None:
        np.testing.assert_array_equal(numbers([True, None, False]), [1, np.nan, 0])
        np.testing.assert_array_equal(numbers([decimal.Decimal("1.5"), None]), [1.5, np.nan])
        np.testing.assert_array_equal(numbers(pa.array([1.5, None]).dictionary_encode()), [1.5, np.nan])
        np.testing.assert_array_equal(numbers(pa.nulls(2)), [np.nan, np.nan])

    def test_infinity_nan_and_overflow(self) -> None:
        values = numbers([float("nan"), float("inf"), -float("inf"), 1e300, -1e300])
        np.testing.assert_array_equal(values, [np.nan, np.inf, -np.inf, np.inf, -np.inf])

    @given(st.lists(st.none() | st.floats(width=32), max_size=20))
    def test_float32_comes_through_unchanged(self, values: list[float | None]) -> None:
        expected = [np.nan if value is None else value for value in values]
        np.testing.assert_array_equal(numbers(pa.array(values, pa.float32())), expected)

    @pytest.mark.parametrize(
        "values", [["1.5"], pa.array(["1"]).dictionary_encode(), [datetime.date(2024, 1, 1)], [[1.0]]]
    )
    def test_refuses(self, values: Any) -> None:
        with pytest.raises(TypeError, match="column 'x' must hold numbers; it is of type"):
            numbers(values)


class TestCategorical:
    def test_whole_numbers_as_pandas_makes_them(self) -> None:
        frame = pd.DataFrame({"c": [5, None, -7]})
        assert str(frame["c"].dtype) == "float64"
        expected = [hash_text("5"), 0, hash_text("-7")]
        assert categories(pa.Table.from_pandas(frame)["c"]) == expected
        assert categories(pa.array([5.0, float("nan"), -7.0])) == expected
        assert categories(pa.chunked_array([[5.0], [None, -7.0]])) == expected
        for kind in (pa.float16(), pa.float32()):
            assert categories(pa.array([5, None, -7], kind)) == expected
        assert categories(pa.array([], pa.float64())) == []
        assert categories(pa.array([-0.0])) == [hash_text("0")]

    def test_other_floats_are_their_shortest_text(self) -> None:
        assert categories([1.0, 0.5]) == [hash_text("1"), hash_text("0.5")]
        assert categories(pa.array([0.1, 1.0], pa.float32())) == [hash_text("0.1"), hash_text("1")]

    @pytest.mark.parametrize("bad", [float("inf"), -float("inf"), 2.0**53 + 2])
    def test_refuses_floats_that_stand_for_several_integers(self, bad: float) -> None:
        with pytest.raises(TypeError, match=r"column 'c': .* type double and row 1 is .*; list it as numerical"):
            categories([1.0, bad])
        with pytest.raises(TypeError, match=r"column 'c': .* row 2 is "):
            categories(pa.chunked_array([[None, 1.0], [bad]]))

    def test_the_largest_whole_numbers_depend_on_the_type(self) -> None:
        assert categories(pa.array([2**24], pa.float32())) == [hash_text(str(2**24))]
        with pytest.raises(TypeError, match="column 'c'"):
            categories(pa.array([2.0**24 + 2], pa.float32()))

    def test_refuses_lists_by_name(self) -> None:
        with pytest.raises(TypeError, match=r"column 'c': .*list<.*a list is not one category"):
            categories([["a", "b"]])


class TestLabel:
    @pytest.mark.parametrize("values", [[False, True, False], [0.0, 1.0, 0.0], pa.array([0, 1, 0], pa.uint8())])
    def test_accepts(self, values: Any) -> None:
        label = batch_from_table(with_column("click", [values] if isinstance(values, list) else values), SCHEMA).label
        assert label is not None
        assert label.tolist() == [0, 1, 0]

    @pytest.mark.parametrize("bad", [2, -1, 0.5, float("nan"), float("inf"), 1e-300, 1 + 1e-12])
    def test_refuses_what_is_not_binary(self, bad: float) -> None:
        with pytest.raises(ValueError, match=rf"label column 'click' must hold 0 and 1 only; row 1 is {bad}"):
            batch_from_table(with_column("click", [[0, bad, 1]]), SCHEMA)

    def test_refuses_null(self) -> None:
        for values in ([0, 1, None], pa.nulls(3)):
            row = 2 if isinstance(values, list) else 0
            rule = (
                f"'click' must have a value in every row; row {row} is null; --bad-rows skip, in Python bad_rows='skip'"
            )
            with pytest.raises(ValueError, match=rule):
                batch_from_table(with_column("click", [values] if isinstance(values, list) else values), SCHEMA)

    @pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int8(), pa.string())])
    def test_refuses_text(self, kind: pa.DataType) -> None:
        with pytest.raises(
            TypeError, match=r"label column 'click' must hold numbers; it is of type string; --label-map TEXT=1"
        ):
            batch_from_table(with_column("click", pa.array(["no", "yes", "no"], kind)), SCHEMA)


class TestWeight:
    @pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), 1e300])
    def test_refuses(self, bad: float) -> None:
        with pytest.raises(ValueError, match=r"weight column 'w' must hold finite numbers ≥ 0; row 2 is "):
            batch_from_table(with_column("w", [[1.0, 1.0, bad]]), SCHEMA)

    def test_refuses_null(self) -> None:
        with pytest.raises(ValueError, match="'w' must have a value in every row; row 0 is null"):
            batch_from_table(with_column("w", [[None, 1.0, 1.0]]), SCHEMA)


class TestTime:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (pa.array([1, 2, -3], pa.timestamp("s")), [10**9, 2 * 10**9, -3 * 10**9]),
            (pa.array([1, 2, 3], pa.timestamp("ms", "Europe/Zurich")), [10**6, 2 * 10**6, 3 * 10**6]),
            (pa.array([1, 2, 3], pa.timestamp("ns", "UTC")), [1, 2, 3]),
            (pa.array([0, 1, 2], pa.date32()), [0, 86_400 * 10**9, 2 * 86_400 * 10**9]),
            (pa.array([0, 86_400_000, 0], pa.date64()), [0, 86_400 * 10**9, 0]),
            (pa.array([3, 1, 2], pa.int16()), [3, 1, 2]),
            (pa.array([3, 1, 2], pa.uint64()), [3, 1, 2]),
        ],
    )
    def test_nanoseconds_or_as_stored(self, values: pa.Array, expected: list[int]) -> None:
        for column in (values, pa.chunked_array([values[:1], values[1:]])):
            time = batch_from_table(with_column("at", column), SCHEMA).time
            assert time is not None
            assert time.tolist() == expected

    def test_refuses(self) -> None:
        with pytest.raises(
            TypeError, match=r"time column 'at' must hold timestamps.*it is of type double, as '.*'; write all as 2024"
        ):
            batch_from_table(with_column("at", [[0.5, 1.0, 2.0]]), SCHEMA)
        with pytest.raises(ValueError, match="'at' must have a value in every row; row 1 is null"):
            batch_from_table(with_column("at", [[1, None, 2]]), SCHEMA)
        with pytest.raises(ValueError, match="time column 'at' must fit 64 bits"):
            batch_from_table(with_column("at", pa.array([0, 10**12, 0], pa.timestamp("s"))), SCHEMA)
        with pytest.raises(ValueError, match="time column 'at' must fit 64 bits"):
            batch_from_table(with_column("at", pa.array([0, 2**63, 0], pa.uint64())), SCHEMA)

    @pytest.mark.parametrize(
        ("column", "shown"),
        [
            (pa.array([0, 2**34, 0], pa.timestamp("s")), "datetime.datetime(2514, 5, 30, 1, 53, 4)"),
            (pa.array([0, 10**14, 0], pa.timestamp("s")), "100000000000000 (timestamp[s])"),
            (
                pa.array([0, -(2**58), 0], pa.timestamp("us", "Europe/Zurich")),
                "-288230376151711744 (timestamp[us, tz=Europe/Zurich])",
            ),
            (pa.array([0, 10**6, 0], pa.date32()), "datetime.date(4707, 11, 29)"),
            (pa.array([0, 2**63, 0], pa.uint64()), "9223372036854775808"),
        ],
    )
    def test_names_the_row_of_a_time_beyond_64_bits(self, column: pa.Array, shown: str) -> None:
        with pytest.raises(BadValues) as raised:
            batch_from_table(with_column("at", column), SCHEMA)
        rule = "time column 'at' must fit 64 bits, in nanoseconds if timestamps"
        assert raised.value.reasons == {1: f"{rule}, got {shown}"}

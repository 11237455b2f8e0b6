import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daes.stream.category_text import category_text
from daes.stream.csv import CsvSource
from daes.stream.hashing import hash_text
from daes.stream.parquet import ParquetSource
from daes.stream.schema import Schema


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (["True", "TRUE", "true", "False", "FALSE", "tRUE"], ["true", "true", "true", "false", "false", "tRUE"]),
        (["1.0", "-3.00", "0.0", "-0.0", "-0"], ["1", "-3", "0", "0", "0"]),
        (["007", "007.0", "1.50", "1.10", "v1.0", "1.0.0", ".0", "100", "0"], None),
        (["05db9164", "1e945678", "12e45678", "1e5", "e-05", "a+10", "555-10", "2024-10"], None),
        (["1e-05", "1e+16", "1.6777216e+07", "-2E-07"], ["0.00001", "10000000000000000", "16777216", "-0.0000002"]),
        (["2024-01-05T10:00:00.000", "2024-01-05 10:00:00.250000Z"], ["2024-01-05 10:00:00", "2024-01-05 10:00:00.25"]),
        (["2024-01-05 00:00:00", "2024-01-05T00:00:00+00:00"], ["2024-01-05", "2024-01-05"]),
        (["2024-01-05 10:00:00+01:00"], ["2024-01-05 10:00:00+0100"]),
        (["10:00:00.000000", "10:00:00.130", "10:00:00"], ["10:00:00", "10:00:00.13", "10:00:00"]),
        (["2024-01-05 00:00:00-0130", "555-1", "a-b"], None),
        (["", None, " ", "a"], [None, None, " ", "a"]),
        (["the 2024-01-05 10:00:00.000", "2024-01-05 and later, 10:00:00"], None),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_texts_of_one_category(values: list[str | None], want: list[str | None] | None, kind: Any) -> None:
    column = pa.array(values, pa.string()).cast(kind)
    assert category_text(column).to_pylist() == (values if want is None else want)
    sliced = pa.concat_arrays([column, column]).slice(1, len(values))
    doubled = 2 * (values if want is None else want)
    assert category_text(sliced).to_pylist() == doubled[1 : len(values) + 1]
    assert category_text(pa.chunked_array([column, column])).to_pylist() == doubled


def test_numbers() -> None:
    assert category_text(pa.array([3, None])).to_pylist() == [3, None]
    assert category_text(pa.array([3.0, float("nan"), None, -0.0])).to_pylist() == [3, None, None, 0]
    assert category_text(pa.array([3.0, 0.5, -0.0])).to_pylist() == ["3", "0.5", "0"]
    assert category_text(pa.chunked_array([[3.0], [0.5]])).to_pylist() == ["3", "0.5"]
    assert category_text(pa.array([Decimal("1.50"), Decimal("2.00")])).to_pylist() == ["1.50", "2"]
    assert category_text(pa.array([], pa.float64())).to_pylist() == []
    with pytest.raises(TypeError, match="row 1 is 1e\\+17; list it as numerical"):
        category_text(pa.array([0.5, 1e17]))


def moments(unit: str, zone: str | None) -> tuple[Any, Any]:
    seconds = st.integers(0, 2_000_000_000)
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    exact = st.builds(lambda second, part: second * scale + part, seconds, st.integers(0, scale - 1))
    return pa.timestamp(unit, zone), st.one_of(seconds.map(lambda second: second * scale), exact)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)
COLUMNS: dict[str, tuple[Any, Any]] = {
    "booleans": (pa.bool_(), st.booleans()),
    "integers": (pa.int64(), st.integers(-(2**53), 2**53)),
    "unsigned bytes": (pa.uint8(), st.integers(0, 255)),
    "whole floats": (pa.float64(), st.integers(-(2**53), 2**53).map(float)),
    "floats": (pa.float64(), st.floats(-1e15, 1e15, allow_subnormal=False)),
    "single floats": (pa.float32(), st.floats(-1e5, 1e5, width=32, allow_subnormal=False)),
    "text": (pa.string(), TEXT),
    "words": (pa.string(), st.sampled_from(["True", "true", "1.0", "1", "01", "2024-01-05", "1e-05", "", "NA"])),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["True", "a", "", "1.0"])),
    "dates": (pa.date32(), st.dates(dt.date(1970, 1, 1), dt.date(2100, 1, 1))),
    "decimals": (pa.decimal128(10, 2), st.decimals(-(10**7), 10**7, places=2)),
    "clock": (pa.time64("us"), st.times()),
    **{f"moments in {unit}, {zone}": moments(unit, zone) for unit in ("s", "us", "ns") for zone in (None, "UTC")},
    "moments in Paris": moments("us", "Europe/Paris"),
}


def by_pyarrow(table: Any, path: Path) -> None:
    pyarrow.csv.write_csv(table, path)


def by_pandas(table: Any, path: Path) -> None:
    table.to_pandas(date_as_object=True).to_csv(path, index=False)


def by_polars(table: Any, path: Path) -> None:
    polars.from_arrow(table).write_csv(path)


@pytest.mark.parametrize("write", [by_pyarrow, by_pandas, by_polars])
@pytest.mark.parametrize("name", list(COLUMNS))
@given(data=st.data())
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_csv_file_and_its_parquet_twin_are_the_same_categories(
    tmp_path: Path, write: Callable[[Any, Path], None], name: str, data: st.DataObject
) -> None:
    kind, values = COLUMNS[name]
    cells = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=8))
    table = pa.table({"c": pa.array(cells, kind), "row": [f"row {row}" for row in range(len(cells))]})
    pq.write_table(table, tmp_path / "twin.parquet")
    write(table, tmp_path / "twin.csv")
    schema = Schema(None, (), ("c", "row"))
    (parquet,) = ParquetSource(tmp_path / "twin.parquet").iter_batches(schema, 100)
    (csv,) = CsvSource(tmp_path / "twin.csv").iter_batches(schema, 100)
    assert csv.categorical.tolist() == parquet.categorical.tolist()


def test_every_text_without_another_form_hashes_as_itself() -> None:
    from daes.stream.batch import batch_from_table

    words = ["Bern", "5", "-7", "007", "true", "2024-01-05", "a 0.0", "10"]
    batch = batch_from_table(pa.table({"c": words}), Schema(None, (), ("c",)))
    assert batch.categorical[:, 0].tolist() == [hash_text(word) for word in words]
    assert np.unique(batch.categorical).size == len(words)

"""The contract of every source, run on all of them, then what is particular to tables and readers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from daes.stream import csv_text, parquet
from daes.stream.batch import Batch
from daes.stream.csv import CsvSource
from daes.stream.cursor import BatchError, SourceError
from daes.stream.cursor_source import CursorSource
from daes.stream.dataset import Dataset
from daes.stream.hashing import hash_text
from daes.stream.parquet import ParquetSource
from daes.stream.prefetch import Prefetch
from daes.stream.schema import Schema
from daes.stream.source import ReaderSource, Source, TableSource

ROWS = 53
SCHEMA = Schema("click", ("price", "count"), ("city",), time="at")
COLUMNS = ["click", "price", "count", "city", "at"]


def make_rows() -> dict[str, list]:
    rng = np.random.default_rng(5)
    return {
        "click": [int(value) for value in rng.integers(0, 2, ROWS)],
        "price": [None if row % 7 == 3 else row + 0.25 for row in range(ROWS)],
        "count": [row % 5 for row in range(ROWS)],
        "city": [None if row % 11 == 4 else f"00{row % 6}" for row in range(ROWS)],
        "at": [1000 + row for row in range(ROWS)],
    }


DATA = make_rows()
TABLE = pa.table(DATA)
CUTS = [0, 9, 9, 30, 31, ROWS]  # file boundaries: uneven, one file without rows, one with a single row


def parquet_files(folder: Path) -> list[Path]:
    paths = []
    for number in range(len(CUTS) - 1):
        paths.append(folder / f"part-{number}.parquet")
        pq.write_table(TABLE.slice(CUTS[number], CUTS[number + 1] - CUTS[number]), paths[-1], row_group_size=4)
    return paths


def skipping(source: CsvSource) -> CsvSource:
    source.configure(bad_rows="skip")
    return source


def csv_files(folder: Path, ending: str) -> list[Path]:
    paths = []
    for number in range(len(CUTS) - 1):
        paths.append(folder / f"part-{number}{ending}")
        piece = TABLE.slice(CUTS[number], CUTS[number + 1] - CUTS[number])
        compression = {".gz": "gzip", ".zst": "zstd"}.get(paths[-1].suffix)
        with pa.output_stream(str(paths[-1]), compression=compression) as out:
            separator = "\t" if ".tsv" in ending else ","
            pa_csv.write_csv(piece, out, pa_csv.WriteOptions(delimiter=separator))
    return paths


MAKERS: dict[str, Callable[[Path], Source]] = {
    "table": lambda folder: TableSource(TABLE),
    "pandas": lambda folder: TableSource(pd.DataFrame(DATA)),
    "polars": lambda folder: TableSource(pl.DataFrame(DATA)),
    "reader": lambda folder: ReaderSource(lambda: TABLE.to_reader(max_chunksize=6)),
    "parquet": lambda folder: ParquetSource(parquet_files(folder)),
    "csv": lambda folder: CsvSource(csv_files(folder, ".csv")),
    "csv, skipping": lambda folder: skipping(CsvSource(csv_files(folder, ".csv"))),
    "csv.gz": lambda folder: CsvSource(csv_files(folder, ".csv.gz")),
    "tsv.zst": lambda folder: CsvSource(csv_files(folder, ".tsv.zst")),
    "prefetch": lambda folder: Prefetch(ParquetSource(parquet_files(folder)), depth=2),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Source]:
    """Makes fresh sources of the same 53 rows, with buffers so small that every boundary is crossed."""
    monkeypatch.setattr(CursorSource, "_rows_at_once", 8)
    monkeypatch.setattr(csv_text, "_BLOCK", 100)
    monkeypatch.setattr(parquet, "_MIN_ROWS", 1)
    monkeypatch.setattr(parquet, "_MAX_ROWS", 5)
    monkeypatch.setattr(parquet, "_MIN_DICTIONARY_ROWS", 8)

    def made(shard: tuple[int, int] | None = None) -> Source:
        source: Any = MAKERS[request.param](tmp_path)
        (source.source if isinstance(source, Prefetch) else source).configure(shard=shard)
        return source

    return made


def expected(start: int, stop: int) -> Batch:
    rows = range(start, min(stop, ROWS))
    numerical = [[np.nan if DATA[name][row] is None else DATA[name][row] for name in SCHEMA.numerical] for row in rows]
    cities = [[0 if DATA["city"][row] is None else hash_text(DATA["city"][row])] for row in rows]
    return Batch(
        numerical=np.array(numerical, np.float32),
        categorical=np.array(cities, np.int64),
        label=np.array([DATA["click"][row] for row in rows], np.float32),
        time=np.array([DATA["at"][row] for row in rows], np.int64),
    )


def assert_same(batches: list[Batch], bounds: list[tuple[int, int]]) -> None:
    assert [len(batch) for batch in batches] == [min(stop, ROWS) - start for start, stop in bounds]
    for batch, (start, stop) in zip(batches, bounds, strict=True):
        assert batch.equals(expected(start, stop)), (start, stop)


def bounds(batch_size: int, start: int = 0) -> list[tuple[int, int]]:
    return [(row, row + batch_size) for row in range(start, ROWS, batch_size)]


@pytest.mark.parametrize("batch_size", [1, 3, 8, 20, 53, 1000])
def test_batches_have_the_exact_size_and_the_right_values(make: Callable[..., Source], batch_size: int) -> None:
    assert_same(list(make().iter_batches(SCHEMA, batch_size)), bounds(batch_size))


def test_tables_are_the_same_rows(make: Callable[..., Source]) -> None:
    pieces = list(make().iter_tables(["city", "price"], 10))
    assert [piece.num_rows for piece in pieces] == [10, 10, 10, 10, 10, 3]
    assert [piece.schema.names for piece in pieces] == [["city", "price"]] * 6
    assert [price for piece in pieces for price in piece["price"].to_pylist()] == DATA["price"]


def test_the_position_is_that_of_the_next_row(make: Callable[..., Source]) -> None:
    source = make()
    assert source.position()["row"] == 0
    batches = source.iter_batches(SCHEMA, 6)
    for number in range(1, 5):
        next(batches)
        assert (source.position()["row"], source.position()["batch"]) == (6 * number, number)
    assert len(list(batches)) == 5
    assert (source.position()["row"], source.position()["batch"]) == (ROWS, 9)
    assert list(source.iter_batches(SCHEMA, 6)) == []


@pytest.mark.parametrize("batch_size", [3, 10])
def test_resume_is_exact_from_every_position(make: Callable[..., Source], batch_size: int) -> None:
    source = make()
    stored = [json.dumps(source.position())]
    for _ in source.iter_batches(SCHEMA, batch_size):
        stored.append(json.dumps(source.position()))
    for number, text in enumerate(stored):
        again = make()
        again.seek(json.loads(text))
        assert json.dumps(again.position()) == text
        assert_same(list(again.iter_batches(SCHEMA, batch_size)), bounds(batch_size, number * batch_size))


def test_resume_within_one_source_and_with_another_batch_size(make: Callable[..., Source]) -> None:
    source = make()
    batches = source.iter_batches(SCHEMA, 4)
    next(batches), next(batches)
    assert_same(list(source.iter_batches(SCHEMA, 15)), bounds(15, 8))


def test_seek_to_a_row_and_rewind(make: Callable[..., Source]) -> None:
    source = make()
    for row in (37, 0, ROWS, 9):
        source.seek({"row": row})
        assert_same(list(source.iter_batches(SCHEMA, 12)), bounds(12, row))
    source.seek({"row": ROWS + 1})
    with pytest.raises(SourceError, match="1 rows are no longer there"):
        next(source.iter_batches(SCHEMA, 12))


@pytest.mark.parametrize("world", [1, 2, 3, 11])
def test_shards_share_out_the_batches(make: Callable[..., Source], world: int) -> None:
    every = bounds(6)
    for rank in range(world):
        assert_same(list(make(shard=(rank, world)).iter_batches(SCHEMA, 6)), every[rank::world])


def test_a_shard_resumes_and_may_change_its_world(make: Callable[..., Source]) -> None:
    every = bounds(4)
    source = make(shard=(1, 3))
    batches = source.iter_batches(SCHEMA, 4)
    next(batches), next(batches)  # batches 1 and 4; the next of any rank is number 5
    position = source.position()
    assert (position["row"], position["batch"]) == (20, 5)
    for rank, world in ((1, 3), (0, 3), (0, 2), (1, 2), (0, 1)):
        again = make(shard=(rank, world))
        again.seek(position)
        assert_same(
            list(again.iter_batches(SCHEMA, 4)), [b for i, b in enumerate(every) if i >= 5 and i % world == rank]
        )


def test_an_iterator_is_over_when_the_source_moves_on(make: Callable[..., Source]) -> None:
    source = make()
    old = source.iter_batches(SCHEMA, 4)
    next(old)
    new = source.iter_batches(SCHEMA, 4)
    with pytest.raises(RuntimeError, match="this iterator has ended"):
        next(old)
    assert next(new).equals(expected(4, 8))
    source.seek({"row": 0})
    with pytest.raises(RuntimeError, match="this iterator has ended"):
        next(new)


def test_wrong_arguments(make: Callable[..., Source]) -> None:
    source = make()
    for batch_size in (0, -1, 2.5):
        with pytest.raises(ValueError, match=f"batch_size must be a positive integer, got {batch_size}"):
            source.iter_batches(SCHEMA, batch_size)
    with pytest.raises(SourceError, match=r"there is no column 'prize'; did you mean 'price'"):
        source.iter_batches(Schema("click", ("prize",), ()), 4)
    with pytest.raises(ValueError, match="columns must name at least one column"):
        source.iter_tables([], 4)
    for shard in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="shard must be"):
            make(shard=shard)
    for position in ({}, {"row": 3, "batch": 1}, {**source.position(), "page": 1}):
        with pytest.raises(ValueError, match="position must have the keys"):
            source.seek(position)
    for value in (-1, 1.5, "1", True):
        with pytest.raises(ValueError, match=r"position\['skip'\] must be a non-negative integer"):
            source.seek({**source.position(), "skip": value})


def test_number_of_rows_and_types(make: Callable[..., Source], request: pytest.FixtureRequest) -> None:
    source = make(shard=(1, 2))
    known = not any(kind in request.node.callspec.params["make"] for kind in ("csv", "tsv", "reader"))
    assert source.num_rows == (ROWS if known else None)
    assert source.arrow_schema.names == COLUMNS


def test_a_refused_batch_says_where_and_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"click": [0, 1, 0, 1, 0, 2, 0, 1, 1], "price": [float(row) for row in range(9)]})
    schema = Schema("click", ("price",), ())
    for at_once in (1, 100):
        monkeypatch.setattr(CursorSource, "_rows_at_once", at_once)
        source = TableSource(table)
        batches = source.iter_batches(schema, 2)
        assert [next(batches).numerical[0, 0], next(batches).numerical[0, 0]] == [0.0, 2.0]
        with pytest.raises(
            BatchError, match="row 6 of the data: label column 'click' must hold 0 and 1 only, got 2"
        ) as caught:
            next(batches)
        assert source.position() == caught.value.position == {"row": 4, "batch": 2, "skip": 4}
        source.seek(caught.value.next_position)
        assert [batch.numerical[0, 0] for batch in source.iter_batches(schema, 2)] == [6.0, 8.0]


def test_rows_of_a_polars_frame_can_be_left_out() -> None:
    frame = pl.DataFrame({"click": [0, 2, 1], "price": [1.0, 2.0, 3.0], "city": ["Bern", "Rome", "Bern"]})
    source = TableSource(frame)
    schema = Schema("click", ("price",), ("city",))
    with pytest.raises(BatchError, match="row 2 of the data: label column 'click' must hold 0 and 1 only, got 2"):
        next(source.iter_batches(schema, 8))
    source.configure(bad_rows="skip")
    (batch,) = source.iter_batches(schema, 8)
    assert (batch.numerical[:, 0].tolist(), source.bad_rows.count) == ([1, 3], 1)
    views = TableSource(pa.table({"key": pa.array([b"a", b"b"], pa.binary_view())}))
    with pytest.raises(BatchError, match="column 'key': a category must be a string, an integer or a boolean"):
        next(views.iter_batches(Schema(None, (), ("key",)), 8))


def test_a_bare_reader_goes_forward_only() -> None:
    source = ReaderSource(TABLE.to_reader(max_chunksize=6))
    batches = source.iter_batches(SCHEMA, 4)
    assert next(batches).equals(expected(0, 4))
    batches.close()
    assert next(source.iter_batches(SCHEMA, 9)).equals(expected(4, 13))
    source.seek({"row": 20})
    assert next(source.iter_tables(["at"], 3))["at"].to_pylist() == [1020, 1021, 1022]
    source.seek({"row": 22})
    with pytest.raises(SourceError, match="cannot go back to row 22 after 23 rows"):
        next(source.iter_batches(SCHEMA, 4))


def test_tables_of_several_makes() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": pd.Categorical(["x", "y"])}, index=[7, 8])
    assert TableSource(frame).arrow_schema.names == ["a", "b"]
    assert TableSource(pa.record_batch({"a": [1, 2]})).num_rows == 2
    assert TableSource(pa.table({"a": pa.array([], pa.float64())})).num_rows == 0
    assert list(TableSource(pa.table({"a": pa.array([], pa.float64())})).iter_tables(None, 4)) == []
    with pytest.raises(SourceError, match=r"each column of a DataFrame must have values of one type, got: .*column a"):
        TableSource(pd.DataFrame({"a": [1, "x", object()]}, dtype=object))
    for value in (10**30, "\ud800"):
        with pytest.raises(SourceError, match=r"column 'b' of a DataFrame has a value that Arrow cannot hold .*floats"):
            TableSource(pd.DataFrame({"a": [1], "b": [value]}, dtype=object))
    with pytest.raises(TypeError, match="table must be an Arrow table or a pandas or polars frame, got dict"):
        TableSource({"a": [1]})
    with pytest.raises(TypeError, match="reader must be a pyarrow RecordBatchReader, got Table"):
        ReaderSource(TABLE)


def test_two_columns_of_one_name_are_an_error() -> None:
    table = pa.table([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    with pytest.raises(SourceError, match="'a' occurs 2 times"):
        TableSource(table).iter_tables(["a"], 1)


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_a_bad_row_costs_its_row_and_not_its_batch(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(CursorSource, "_rows_at_once", at_once)
    clicks = [0, 1, 2, 1, None, 3, 0, 1, 1]
    table = pa.table({"click": clicks, "price": [float(row) for row in range(9)], "w": [1.0] * 7 + [-1.0, 1.0]})
    schema = Schema("click", ("price",), (), weight="w")
    source = TableSource(table)
    source.configure(bad_rows="skip")
    batches = list(source.iter_batches(schema, 2))
    assert [batch.numerical[:, 0].tolist() for batch in batches] == [[0, 1], [3], [6], [8]]
    assert source.position()["row"] == 9
    assert {row.row: row.reason for row in source.bad_rows.first} == {
        3: "label column 'click' must hold 0 and 1 only, got 2",
        5: "column 'click' must have a value in every row, got null",
        6: "label column 'click' must hold 0 and 1 only, got 3",
        8: "weight column 'w' must hold finite numbers ≥ 0, got -1.0",
    }
    for limit, want in ((3, [0, 1]), (4, [0, 1, 3]), (7, [0, 1, 3, 6]), (9, [0, 1, 3, 6, 8])):
        data = Dataset(source, schema, limit=limit)
        assert [value for batch in data.iter_batches(schema, 5) for value in batch.numerical[:, 0].tolist()] == want
        assert data.position()["row"] == limit


def test_labels_may_be_other_values() -> None:
    schema = Schema("click", (), ("c",))
    for values, mapping in [
        (["yes", "no", "yes"], {"yes": 1, "no": 0}),
        ([2, 1, 2], {"2": 1, "1": 0}),
        ([2.0, 1.0, 2.0], {"2": 1, "1": 0}),
        ([True, False, True], {"true": 1, "false": 0}),
        (["True", "False", "TRUE"], {"True": 1, "False": 0}),
    ]:
        source = TableSource(pa.table({"click": values, "c": ["a", "b", "c"]}))
        source.configure(label_map=mapping)
        (batch,) = source.iter_batches(schema, 8)
        assert batch.label is not None
        assert batch.label.tolist() == [1, 0, 1]
    source.configure(label_map={"yes": 1})
    source.seek({"row": 0})
    with pytest.raises(BatchError, match="row 1 of the data: label column 'click' must hold 'yes', got 'True'"):
        list(source.iter_batches(schema, 8))
    with pytest.raises(ValueError, match="label_map must map to 0 and 1, got 2 for 'yes'"):
        source.configure(label_map={"yes": 2})
    with pytest.raises(TypeError, match="label_map must map texts, got 1; write '1'"):
        source.configure(label_map={1: 0, 2: 1})
    with pytest.raises(ValueError, match="bad_rows must be 'error' or 'skip', got 'ignore'"):
        source.configure(bad_rows="ignore")

from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from daes.stream.csv import CsvSource
from daes.stream.datasets import DATASETS, DatasetInfo
from daes.stream.opening import open as open_stream
from daes.stream.parquet import ParquetSource
from daes.stream.prefetch import Prefetch
from daes.stream.schema import Schema, infer_schema
from daes.stream.source import ReaderSource, SourceError, Stream, TableSource

TABLE = pa.table({"click": [0, 1, 1], "price": [1.0, 2.0, 3.0], "city": ["x", "y", "z"]})
SCHEMA = Schema("click", ("price",), ("city",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    pq.write_table(TABLE, tmp_path / "rows.PQ")
    pq.write_table(TABLE, tmp_path / "part-00000")
    pa_csv.write_csv(TABLE, tmp_path / "rows.csv")
    pa_csv.write_csv(TABLE, tmp_path / "rows.tsv", pa_csv.WriteOptions(delimiter="\t"))
    pa_csv.write_csv(TABLE, tmp_path / "rows.dat")
    return tmp_path


def labels(stream: Stream) -> list[float]:
    (batch,) = stream.source.iter_batches(stream.schema or SCHEMA, 10)
    assert batch.label is not None
    return batch.label.tolist()


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("rows.parquet", ParquetSource, {}),
        ("rows.PQ", ParquetSource, {}),
        ("part-00000", ParquetSource, {}),
        ("*.parquet", ParquetSource, {}),
        ("rows.csv", CsvSource, {}),
        ("rows.tsv", CsvSource, {}),
        ("rows.dat", CsvSource, {"format": "csv"}),
    ],
)
def test_paths(folder: Path, name: str, kind: type, options: dict) -> None:
    for where in (folder / name, str(folder / name), f"file://{folder}/{name}", [folder / name]):
        stream = open_stream(where, **options)
        assert isinstance(stream.source, kind)
        assert (stream.schema, stream.name, stream.notes) == (None, name, ())
        assert labels(stream) == [0, 1, 1]


def test_a_directory_may_hold_other_things(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    (tmp_path / "README.md").write_text("about these rows")
    assert open_stream(tmp_path).source.num_rows == 3
    pa_csv.write_csv(TABLE, tmp_path / "b.csv")
    with pytest.raises(SourceError, match=r"files must be of one format, got .*b\.csv and .*a\.parquet"):
        open_stream(tmp_path)


def test_tables_and_frames() -> None:
    for table in (TABLE, TABLE.to_batches()[0], pd.DataFrame(TABLE.to_pydict()), pl.DataFrame(TABLE.to_pydict())):
        stream = open_stream(table)
        assert isinstance(stream.source, TableSource)
        assert labels(stream) == [0, 1, 1]
    assert isinstance(open_stream(TABLE.to_reader()).source, ReaderSource)
    source = TableSource(TABLE)
    assert open_stream(source).source is source
    with pytest.raises(TypeError, match=r"a source has its own shard, got \(0, 2\)"):
        open_stream(source, shard=(0, 2))
    with pytest.raises(TypeError, match="separator is for files, got ';' and what is a Table"):
        open_stream(TABLE, separator=";")
    with pytest.raises(TypeError, match="table must be an Arrow table or a pandas or polars frame, got int"):
        open_stream(3)


def test_schema_shard_prefetch_and_options(folder: Path) -> None:
    stream = open_stream(folder / "rows.csv", schema=SCHEMA, shard=(1, 2), prefetch=2, bad_rows="skip")
    assert isinstance(stream.source, Prefetch)
    assert stream.schema == SCHEMA
    assert [batch.numerical[0, 0] for batch in stream.source.iter_batches(SCHEMA, 1)] == [2.0]
    (table,) = open_stream(folder / "rows.csv", schema=Schema(None, (), ("price",))).source.iter_tables(["price"], 9)
    assert table["price"].to_pylist() == ["1", "2", "3"]
    with pytest.raises(TypeError, match=r"separator are options of CSV files; .*rows\.parquet is a Parquet file"):
        open_stream(folder / "rows.parquet", separator=";")
    with pytest.raises(TypeError, match="unexpected keyword argument 'seperator'"):
        open_stream(folder / "rows.csv", seperator=";")


def test_a_schema_is_inferred_from_what_was_opened(folder: Path) -> None:
    for name in ("rows.parquet", "rows.csv"):
        assert infer_schema(open_stream(folder / name).source.arrow_schema) == SCHEMA


def test_datasets_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def opener(*path: str, **options: object) -> Stream:
        calls.append((path, options))
        return Stream(TableSource(TABLE), SCHEMA, "toy")

    monkeypatch.setitem(DATASETS, "toy", DatasetInfo("toy", "three rows", opener))
    monkeypatch.setitem(DATASETS, "mine", DatasetInfo("mine", "your rows", opener, needs_path=True))
    assert labels(open_stream("toy", rows=5)) == [0, 1, 1]
    open_stream("mine:a/b:c", shard=(0, 2))
    assert calls == [((), {"shard": None, "rows": 5}), (("a/b:c",), {"shard": (0, 2)})]
    assert open_stream("toy", schema=Schema(None, ("price",), ())).schema == Schema(None, ("price",), ())
    with pytest.raises(ValueError, match="mine needs the path of its files, as in mine:PATH"):
        open_stream("mine")
    with pytest.raises(ValueError, match="toy takes no path, got toy:x"):
        open_stream("toy:x")
    with pytest.raises(
        ValueError, match=r"there is no dataset 'tog'; there are: criteo:PATH, automl:PATH, flights, .*toy"
    ):
        open_stream("tog:x")
    with pytest.raises(
        FileNotFoundError, match="there is no file toys, and no dataset of that name; there are: criteo"
    ):
        open_stream("toys")
    pq.write_table(TABLE, tmp_path / "toy")
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_stream("./toy").source, ParquetSource)


def test_what_cannot_be_opened(folder: Path) -> None:
    with pytest.raises(
        SourceError, match=r"the format of .*rows\.dat is not known by its ending .*; name it with format="
    ):
        open_stream(folder / "rows.dat")
    with pytest.raises(ValueError, match="format must be 'parquet' or 'csv', got 'xml'"):
        open_stream(folder / "rows.dat", format="xml")
    with pytest.raises(FileNotFoundError, match=r"no file matches .*\*\.orc"):
        open_stream(folder / "*.orc")


def test_the_simulated_stream_is_opened_by_name_and_length():
    stream = open_stream("adstream:3_000", seed=4)
    assert stream.source.num_rows == 3000
    assert stream.source.seed == 4
    with pytest.raises(ValueError, match="adstream takes a number of rows, as in adstream:200000, got adstream:x"):
        open_stream("adstream:x")

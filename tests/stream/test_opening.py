from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from daes.stream.csv import CsvSource
from daes.stream.cursor import SourceError
from daes.stream.opening import name_of, open_source
from daes.stream.parquet import ParquetSource
from daes.stream.schema import Schema, infer_schema
from daes.stream.source import ReaderSource, Source, TableSource

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


def labels(source: Source) -> list[float]:
    (batch,) = source.iter_batches(SCHEMA, 10)
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
        source = open_source(where, **options)
        assert isinstance(source, kind)
        assert name_of(where) == name
        assert labels(source) == [0, 1, 1]


def test_a_directory_may_hold_other_things(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    (tmp_path / "README.md").write_text("about these rows")
    assert open_source(tmp_path).num_rows == 3
    pa_csv.write_csv(TABLE, tmp_path / "b.csv")
    with pytest.raises(SourceError, match=r"files must be of one format, got .*b\.csv and .*a\.parquet"):
        open_source(tmp_path)


def test_tables_and_frames() -> None:
    for table in (TABLE, TABLE.to_batches()[0], pd.DataFrame(TABLE.to_pydict()), pl.DataFrame(TABLE.to_pydict())):
        source = open_source(table)
        assert isinstance(source, TableSource)
        assert name_of(table) == "table"
        assert labels(source) == [0, 1, 1]
    reader = TABLE.to_reader()
    assert isinstance(open_source(reader), ReaderSource)
    again = open_source(TABLE.to_reader)  # a function makes a fresh one for each pass
    for _ in range(2):
        again.seek({"row": 0})
        assert labels(again) == [0, 1, 1]
    assert name_of(TABLE.to_reader) == "reader"
    source = TableSource(TABLE)
    assert open_source(source) is source
    assert (name_of(reader), name_of(source)) == ("reader", "TableSource")
    with pytest.raises(TypeError, match="separator is for files, got ';' and a Table"):
        open_source(TABLE, separator=";")
    with pytest.raises(TypeError, match="table must be an Arrow table or a pandas or polars frame, got int"):
        open_source(3)


def test_shards_and_options(folder: Path) -> None:
    source = open_source(folder / "rows.csv")
    source.configure(shard=(1, 2))
    assert [batch.numerical[0, 0] for batch in source.iter_batches(SCHEMA, 1)] == [2.0]
    with pytest.raises(TypeError, match=r"options of CSV files: separator; .*rows\.parquet is a Parquet file"):
        open_source(folder / "rows.parquet", separator=";")
    with pytest.raises(TypeError, match="unexpected keyword argument 'seperator'"):
        open_source(folder / "rows.csv", seperator=";")


def test_a_schema_is_inferred_from_what_was_opened(folder: Path) -> None:
    for name in ("rows.parquet", "rows.csv"):
        assert infer_schema(open_source(folder / name).arrow_schema) == SCHEMA


def test_what_cannot_be_opened(folder: Path) -> None:
    with pytest.raises(
        SourceError, match=r"the extension of .*rows\.dat does not tell its format .*; name it with --format"
    ):
        open_source(folder / "rows.dat")
    (folder / "rows.xlsx").write_bytes(b"PK\x03\x04\x14\x00")
    with pytest.raises(SourceError, match=r"rows\.xlsx must be UTF-8 text, got a zip archive or an Excel file: unpack"):
        open_source(folder / "rows.xlsx")
    with pytest.raises(ValueError, match="format must be 'parquet' or 'csv', got 'xml'"):
        open_source(folder / "rows.dat", format="xml")
    with pytest.raises(FileNotFoundError, match=r"no file matches .*\*\.orc"):
        open_source(folder / "*.orc")

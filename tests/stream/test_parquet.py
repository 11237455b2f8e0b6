import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream import parquet
from daes.stream.batch import Batch
from daes.stream.cursor import SourceError
from daes.stream.cursor_source import CursorSource
from daes.stream.dataset import Dataset
from daes.stream.files import DataFile
from daes.stream.hashing import hash_text
from daes.stream.parquet import ParquetSource
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price",), ("city",))


def write(path: Path, rows: range, **types: Any) -> Path:
    columns = {
        "click": pa.array([row % 2 for row in rows], types.get("click", pa.int8())),
        "price": pa.array([float(row) for row in rows]).cast(types.get("price", pa.float64())),
        "city": pa.array([str(row % 3) for row in rows]).cast(types.get("city", pa.string())),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=4)
    return path


def prices(source: ParquetSource, batch_size: int = 5) -> list[float]:
    return [value for batch in source.iter_batches(SCHEMA, batch_size) for value in batch.numerical[:, 0].tolist()]


def test_only_the_columns_that_are_needed_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", range(10))
    asked = []
    original = pq.ParquetFile.iter_batches

    def spy(self: Any, *args: Any, **options: Any) -> Any:
        asked.append(options["columns"])
        return original(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    list(ParquetSource(path).iter_batches(Schema(None, ("price",), ()), 4))
    assert asked == [["price"]]


def test_row_groups_are_skipped_by_their_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", range(40))
    groups = []
    original = pq.ParquetFile.iter_batches

    def spy(self: Any, *args: Any, **options: Any) -> Any:
        groups.append(list(options["row_groups"]))
        return original(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    monkeypatch.setattr(parquet, "_MIN_ROWS", 1)
    source = ParquetSource(path)
    source.seek({"row": 30})
    assert prices(source) == [float(row) for row in range(30, 40)]
    assert groups == [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [7, 8, 9]]  # the first is opened, and never read from
    groups.clear()
    source = ParquetSource(path)
    source.configure(shard=(1, 4))
    assert prices(source, 2) == [2, 3, 10, 11, 18, 19, 26, 27, 34, 35]
    assert [opened[:1] for opened in groups] == [[0], [2], [4], [6], [8], []]


@pytest.mark.parametrize("dictionary_rows", [1, 10**9])
def test_dictionaries_change_nothing_but_the_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dictionary_rows: int
) -> None:
    monkeypatch.setattr(parquet, "_MIN_DICTIONARY_ROWS", dictionary_rows)
    files = [
        write(tmp_path / "1.parquet", range(10)),
        write(tmp_path / "2.parquet", range(10, 20), city=pa.large_string()),
        write(tmp_path / "3.parquet", range(20, 30), city=pa.int64()),
    ]
    hashes = [
        value
        for batch in ParquetSource(files[:2]).iter_batches(SCHEMA, 7)
        for value in batch.categorical[:, 0].tolist()
    ]
    assert hashes == [hash_text(str(row % 3)) for row in range(20)]
    (batch,) = ParquetSource(files[2]).iter_batches(SCHEMA, 100)
    assert batch.categorical[:, 0].tolist() == [hash_text(str(row % 3)) for row in range(20, 30)]


def test_types_of_one_kind_go_together_within_a_batch(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "1.parquet", range(3)),
        write(tmp_path / "2.parquet", range(3, 6), price=pa.int32(), click=pa.float32()),
        write(tmp_path / "3.parquet", range(6, 9), price=pa.float32(), city=pa.large_string()),
    ]
    dictionary = pa.table({"click": [1], "price": [9.0], "city": pa.array(["0"]).dictionary_encode()})
    pq.write_table(dictionary, tmp_path / "4.parquet")
    pq.write_table(pa.table({"click": [0], "price": pa.nulls(1), "city": pa.nulls(1)}), tmp_path / "5.parquet")
    source = ParquetSource([*files, tmp_path / "4.parquet", tmp_path / "5.parquet"])
    (batch,) = source.iter_batches(SCHEMA, 100)
    assert batch.numerical[:10, 0].tolist() == [float(row) for row in range(10)]
    assert batch.categorical[:, 0].tolist() == [hash_text(str(row % 3)) for row in range(10)] + [0]
    source.seek({"row": 0})
    (table,) = source.iter_tables(None, 100)
    assert table["city"].to_pylist() == [str(row % 3) for row in range(10)] + [None]


def test_times_of_any_unit_go_together_within_a_batch(tmp_path: Path) -> None:
    day, second = 86_400 * 10**9, 10**9
    times = {
        "s": pa.array([1], pa.timestamp("s")),
        "ns": pa.array([2 * second], pa.timestamp("ns")),
        "zone": pa.array([3_000], pa.timestamp("ms", "Asia/Tokyo")),
        "date": pa.array([4], pa.date32()),
    }
    for number, column in enumerate(times.values()):
        pq.write_table(pa.table({"price": [1.0], "at": column}), tmp_path / f"{number}.parquet")
    (batch,) = ParquetSource(tmp_path).iter_batches(Schema(None, ("price",), (), time="at"), 10)
    assert batch.time is not None
    assert batch.time.tolist() == [second, 2 * second, 3 * second, 4 * day]


@pytest.mark.parametrize("other", [pa.array([0.5]), pa.array([2**64 - 1], pa.uint64()), pa.array([-1])])
def test_large_integers_go_together_with_other_numbers(tmp_path: Path, other: pa.Array) -> None:
    large = 2**60 + 1
    for number, column in enumerate((pa.array([large]), other, pa.array([large], pa.uint64()))):
        pq.write_table(pa.table({"price": [1.0], "large": column}), tmp_path / f"{number}.parquet")
    wanted = [2.0**60, float(np.float32(other[0].as_py())), 2.0**60]
    (batch,) = ParquetSource(tmp_path).iter_batches(Schema(None, ("large",), ()), 10)
    assert batch.numerical[:, 0].tolist() == wanted
    (batch,) = ParquetSource(tmp_path).iter_batches(Schema(None, ("price",), ("large",)), 10)
    assert batch.categorical[:, 0].tolist() == [hash_text(text) for text in (str(large), str(other[0]), str(large))]
    left_out = Dataset.open(tmp_path, schema=Schema(None, ("price",), ())).iter_tables(None, 10)
    assert [table.num_rows for table in left_out] == [3]


ID_TYPES = {
    "int": pa.array([1, 2, None]),
    "text": pa.array(["1", "2", None]),
    "large text": pa.array(["1", "2", None], pa.large_string()),
    "dictionary": pa.array(["1", "2", None]).dictionary_encode(),
    "float": pa.array([1.0, 2.0, None]),
    "small int": pa.array([1, 2, None], pa.uint8()),
    "null": pa.nulls(3),
}


@pytest.mark.parametrize("first", ID_TYPES)
@pytest.mark.parametrize("rows_at_once", [1, 65_536])
def test_a_category_may_have_another_type_in_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, rows_at_once: int
) -> None:
    monkeypatch.setattr(CursorSource, "_rows_at_once", rows_at_once)
    for number, kind in enumerate([first, *ID_TYPES]):
        price = pa.array([1, 2, 3], [pa.int64(), pa.float32(), pa.decimal128(5)][number % 3])
        table = pa.table({"click": pa.array([0, 1, 0]), "price": price, "id": ID_TYPES[kind]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    data = Dataset.open(tmp_path, numerical=["price"], categorical=["id"])
    batch = Batch.concat(list(data.iter_batches(data.schema, 2)))
    known = [hash_text("1"), hash_text("2"), 0]
    expected = [known if kind != "null" else [0, 0, 0] for kind in (first, *ID_TYPES)]
    assert batch.categorical[:, 0].tolist() == [value for values in expected for value in values]
    assert batch.numerical[:, 0].tolist() == [1.0, 2.0, 3.0] * 8
    tables = list(data.from_start().iter_tables(None, 2))  # as the summary of columns and predictions read them
    assert sum(len(table) for table in tables) == 24
    others = data.with_schema(Schema("click", ("price",), ())).from_start().iter_tables(["id"], 24)  # none has a role
    assert sum(len(table) for table in others) == 24


def test_a_column_without_a_role_keeps_its_type_if_there_is_a_common_one(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.int32(), pa.int64())):
        pq.write_table(pa.table({"id": pa.array([1], kind), "price": [1.0]}), tmp_path / f"{number}.parquet")
    (table,) = Dataset.open(tmp_path, schema=Schema(None, ("price",), ())).iter_tables(["id"], 10)
    assert table.schema.field("id").type == pa.int64()


def test_booleans_are_categories_and_numbers(tmp_path: Path) -> None:
    for number, values in enumerate([[True, False], [1, 0], ["true", "false"]]):
        pq.write_table(pa.table({"flag": values, "price": [1.0, 2.0]}), tmp_path / f"{number}.parquet")
    source = ParquetSource(tmp_path)
    (batch,) = source.iter_batches(Schema(None, (), ("flag",)), 10)
    texts = ["true", "false", "1", "0", "true", "false"]
    assert batch.categorical[:, 0].tolist() == [hash_text(text) for text in texts]
    source = ParquetSource([tmp_path / "0.parquet", tmp_path / "1.parquet"])
    (batch,) = source.iter_batches(Schema(None, ("flag",), ()), 10)
    assert batch.numerical[:, 0].tolist() == [1.0, 0.0, 1.0, 0.0]


def test_what_is_no_category_is_named_with_its_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"id": [[1, 2]]}), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"'id' is int64 in .*1\.parquet and list<.*> in .*2\.parquet"):
        list(ParquetSource(tmp_path).iter_batches(Schema(None, (), ("id",)), 10))
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"'id' is int64 in .* and string in .*; as a category \(--categorical\)"):
        list(ParquetSource(tmp_path).iter_batches(Schema(None, ("id",), ()), 10))
    with pytest.raises(SourceError, match=r"'id' is int64 in .* and string in "):
        list(ParquetSource(tmp_path).iter_tables(["id"], 10))


def test_mapped_labels_may_be_text_and_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"click": [0, 1], "price": [1.0, 2.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"click": ["1", "0"], "price": [3.0, 4.0]}), tmp_path / "2.parquet")
    source = ParquetSource(tmp_path)
    source.configure(label_map={"0": 0, "1": 1})
    (batch,) = source.iter_batches(Schema("click", ("price",), ()), 10)
    assert batch.label is not None
    assert batch.label.tolist() == [0, 1, 1, 0]


def test_a_partition_of_numbers_is_one_in_tables_too(tmp_path: Path) -> None:
    for day in (1, 2):
        write(tmp_path / f"day={day}" / "a.parquet", range(2))
    data = Dataset.open(tmp_path, schema=Schema(None, ("day",), ("city",)))
    (table,) = data.iter_tables(["day"], 10)
    assert table["day"].to_pylist() == [1.0, 1.0, 2.0, 2.0]


def test_files_that_disagree(tmp_path: Path) -> None:
    first = write(tmp_path / "1.parquet", range(4))
    second = write(tmp_path / "2.parquet", range(4), price=pa.string())
    with pytest.raises(SourceError, match=r"'price' is double in .*1\.parquet and string in .*2\.parquet"):
        prices(ParquetSource([first, second]))
    pq.write_table(pa.table({"click": [0], "city": ["x"]}), tmp_path / "3.parquet")
    with pytest.raises(SourceError, match=r"3\.parquet: there is no column 'price'"):
        prices(ParquetSource([first, tmp_path / "3.parquet"]))


def test_what_is_not_a_whole_parquet_file(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.parquet", range(2000)).read_bytes()
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole[:-50])
    with pytest.raises(SourceError, match=r"cut\.parquet is not a whole Parquet file: "):
        prices(ParquetSource(cut))
    with pytest.raises(SourceError, match=r"cut\.parquet is not a whole Parquet file: "):
        _ = ParquetSource(cut).num_rows
    cut.write_bytes(b"")
    with pytest.raises(SourceError, match=r"cut\.parquet is empty, not a Parquet file"):
        prices(ParquetSource(cut))
    start = pq.ParquetFile(tmp_path / "whole.parquet").metadata.row_group(250).column(1).data_page_offset
    cut.write_bytes(whole[:start] + b"\xff" * 20 + whole[start + 20 :])
    with pytest.raises(SourceError, match=r"cut\.parquet is damaged after row \d+: "):
        prices(ParquetSource(cut))


def test_pages_with_checksums_are_checked(tmp_path: Path) -> None:
    whole, other = tmp_path / "whole.parquet", tmp_path / "other.parquet"
    table = pa.table({"click": [0.0, 1.0] * 500, "price": np.arange(1000.0), "city": ["Bern"] * 1000})
    pq.write_table(table, whole, compression="none", use_dictionary=False, write_page_checksum=True)
    assert prices(ParquetSource(whole)) == list(range(1000))
    content = whole.read_bytes()
    other.write_bytes(content.replace(np.float64(500).tobytes(), np.float64(501).tobytes(), 1))
    with pytest.raises(SourceError, match=r"other\.parquet is damaged after row \d+: .*checksum"):
        prices(ParquetSource(other))


def test_a_position_is_of_its_files(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{number}.parquet", range(number * 4, number * 4 + 4)) for number in range(3)]
    source = ParquetSource(files)
    next(source.iter_batches(SCHEMA, 6))
    position = source.position()
    with pytest.raises(ValueError, match=r"file 1 was '1\.parquet' and is '2\.parquet'"):
        ParquetSource([files[0], files[2]]).seek(position)
    with pytest.raises(ValueError, match=r"file 1 was '1\.parquet' and is ''|file 1 was '1\.parquet' and is not there"):
        ParquetSource(files[:1]).seek(position)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    again = ParquetSource([path.rename(moved / path.name) for path in files])
    again.seek(position)
    assert prices(again) == [6, 7, 8, 9, 10, 11]


def test_hive_partitions_are_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CursorSource, "_rows_at_once", 1)
    for number, (day, place) in enumerate([(2, "a%2Fb"), (10, "__HIVE_DEFAULT_PARTITION__")]):
        write(tmp_path / "set=1" / f"day={day}" / f"place={place}" / "part.parquet", range(4 * number, 4 * number + 4))
    source = ParquetSource(tmp_path / "set=1")
    assert source.arrow_schema.names == ["click", "price", "city", "day", "place"]
    schema = Schema("click", ("day",), ("place",))
    batches = list(source.iter_batches(schema, 3))
    assert [value for batch in batches for value in batch.numerical[:, 0]] == [2] * 4 + [10] * 4
    assert [value for batch in batches for value in batch.categorical[:, 0]] == [hash_text("a/b")] * 4 + [0] * 4
    source.seek({"row": 0})
    pieces = list(source.iter_tables(["place", "day"], 5))
    assert [piece.schema.names for piece in pieces] == [["place", "day"]] * 2
    assert [day for piece in pieces for day in piece["day"].to_pylist()] == ["2"] * 4 + ["10"] * 4
    (batch,) = ParquetSource(tmp_path).iter_batches(Schema("click", ("price",), ("set",), time="day"), 100)
    assert batch.time is not None
    assert batch.time.tolist() == [2] * 4 + [10] * 4
    with pytest.raises(SourceError, match=r"numerical column 'place' must hold numbers; .* has place=a/b"):
        list(ParquetSource(tmp_path).iter_batches(Schema("click", ("place",), ()), 3))


def test_partitions_must_agree_and_a_column_of_the_file_wins(tmp_path: Path) -> None:
    write(tmp_path / "mixed" / "day=1" / "a.parquet", range(2))
    write(tmp_path / "mixed" / "b.parquet", range(2))
    with pytest.raises(
        SourceError, match=r"b\.parquet has \[\], .* has \['day'\]|has \['day'\], .*b\.parquet has \[\]"
    ):
        ParquetSource(tmp_path / "mixed")
    write(tmp_path / "own" / "city=Rome" / "a.parquet", range(2))
    (table,) = ParquetSource(tmp_path / "own").iter_tables(["city"], 10)
    assert table["city"].to_pylist() == ["0", "1"]


def test_a_file_is_opened_once_however_often_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    genuine = DataFile.open
    monkeypatch.setattr(DataFile, "open", lambda file: opened.append(file.name) or genuine(file))
    table = pa.table({"price": np.arange(50_000.0), "city": ["Bern", "Rome"] * 25_000})
    pq.write_table(table, tmp_path / "rows.parquet")
    source = ParquetSource(tmp_path / "rows.parquet")
    schema = Schema(None, ("price",), ("city",))
    for batch_size in (100, 20_000):  # strings, then dictionaries
        source.seek({"row": 10})
        rows = [batch.numerical[:, 0] for batch in source.iter_batches(schema, batch_size)]
        np.testing.assert_array_equal(np.concatenate(rows), np.arange(10.0, 50_000))
    assert source.num_rows == 50_000
    assert source.arrow_schema.names == ["price", "city"]
    copy = pickle.loads(pickle.dumps(source))
    assert opened == ["rows.parquet"]
    copy.seek({"row": 0})
    assert len(next(copy.iter_batches(schema, 10))) == 10
    assert opened == ["rows.parquet"] * 2

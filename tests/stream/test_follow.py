import threading
import time

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream.columns import summarize_columns
from daes.stream.cursor import SourceError
from daes.stream.dataset import Dataset
from daes.stream.hashing import hash_text
from daes.stream.prefetch import Prefetch
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price",), ("city",))


def write(folder, name, prices):
    """A file that arrives as files should: written under another name, then renamed."""
    text = "click,price,city\n" + "".join(f"{number % 2},{price},Bern\n" for number, price in enumerate(prices))
    temporary = folder / f"{name}.tmp"
    temporary.write_text(text)
    temporary.rename(folder / name)


def follow(folder, **options):
    return Dataset.open(folder, schema=SCHEMA, follow=True, max_wait=0.05, **options)


def take(source, rows, batch_size=2):
    """The prices of the next rows, batch by batch."""
    found, pieces = 0, []
    for batch in source.iter_batches(SCHEMA, batch_size):
        if len(batch):
            pieces.append(batch.numerical[:, 0].tolist())
            found += len(batch)
        if found >= rows:
            return pieces
    raise AssertionError("a live source does not end")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("daes.stream.follow._BETWEEN_LISTINGS", 0.01)


def test_files_are_one_stream_in_the_order_of_their_names(tmp_path, quick):
    for name, prices in (("day_10.csv", [4, 5]), ("day_9.csv", [1, 2, 3])):
        write(tmp_path, name, prices)
    assert take(follow(tmp_path), 5) == [[1, 2], [3, 4], [5]]


def test_the_order_may_be_that_of_time(tmp_path, quick):
    for number, name in enumerate(("b.csv", "a.csv")):
        write(tmp_path, name, [number])
        time.sleep(0.02)
    assert take(follow(tmp_path, order="time"), 2) == [[0, 1]]
    with pytest.raises(ValueError, match="order must be 'name' or 'time', got 'size'"):
        follow(tmp_path, order="size")


def test_files_that_come_later_are_read_whatever_their_names(tmp_path, quick):
    write(tmp_path, "m.csv", [1, 2])
    data = follow(tmp_path)
    batches = data.iter_batches(SCHEMA, 2)
    assert next(batches).numerical[:, 0].tolist() == [1, 2]
    assert len(next(batches)) == 0
    write(tmp_path, "a.csv", [3])
    later = next(batch for batch in batches if len(batch))
    assert later.numerical[:, 0].tolist() == [3]


def test_columns_that_only_later_files_have_are_reported_once(tmp_path, quick, caplog):
    header = "click,price,city,age,\n"
    write(tmp_path, "1.csv", [1])
    inferred, named = (Dataset.open(tmp_path, follow=True, max_wait=0.05, schema=s) for s in (None, SCHEMA))
    for name in ("2.csv", "3.csv"):
        (tmp_path / name).write_text(header + "0,2,Bern,3,\n")
    take(named, 3)
    assert caplog.messages == []
    take(inferred, 3)
    assert caplog.messages == [
        f"{tmp_path / '2.csv'} has columns that are not used, since the first file lacks them: 'age'"
    ]


def test_unfinished_and_other_files_are_left_alone(tmp_path, quick):
    for name in (".hidden.csv", "_SUCCESS", "a.csv.tmp", "a.tmp.gz", "b.csv.partial", "notes.md"):
        (tmp_path / name).write_text("no rows")
    write(tmp_path, "z.csv", [7])
    assert take(follow(tmp_path), 1) == [[7]]
    hidden = tmp_path / ".y.csv"
    hidden.write_text("no rows")
    assert take(follow(str(tmp_path / "*.csv")), 1) == [[7]]


@pytest.mark.parametrize("stop", range(1, 7))
def test_a_position_is_a_file_and_a_row(tmp_path, quick, stop):
    write(tmp_path, "1.csv", [1, 2, 3])
    pq.write_table(pa.table({"click": [0, 1], "price": [4.0, 5.0], "city": ["Bern", "Rome"]}), tmp_path / "2.parquet")
    write(tmp_path, "3.csv", [6, 7])
    first = follow(tmp_path)
    before = take(first, stop, batch_size=1)
    position = first.position()
    (tmp_path / "0.csv").unlink(missing_ok=True)
    write(tmp_path, "0.csv", [8])
    again = follow(tmp_path)
    again.seek(position)
    after = take(again, 8 - stop, batch_size=1)
    assert sorted(price for piece in before + after for price in piece) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_files_that_were_read_may_be_moved_away_and_the_one_in_hand_may_not(tmp_path, quick):
    write(tmp_path, "1.csv", [1, 2])
    write(tmp_path, "2.csv", [3, 4])
    data = follow(tmp_path)
    take(data, 3, batch_size=1)
    (tmp_path / "1.csv").unlink()
    again = follow(tmp_path)
    again.seek(data.position())
    assert take(again, 1) == [[4]]
    (tmp_path / "2.csv").unlink()
    gone = follow(tmp_path)
    gone.seek(data.position())
    with pytest.raises(SourceError, match=r"2\.csv was not read to its end and is no longer there"):
        take(gone, 1)


def test_the_first_file_may_be_yet_to_come(tmp_path, quick, caplog):
    threading.Timer(0.1, write, (tmp_path, "1.csv", [1])).start()
    data = Dataset.open(tmp_path, follow=True, max_wait=0.05)
    assert data.schema == SCHEMA
    assert "waiting for the first one" in caplog.text
    assert data.is_live
    assert data.num_rows is None


def test_a_bucket_may_have_no_file_yet_and_may_be_out_of_reach(quick, caplog, monkeypatch):
    memory = fsspec.filesystem("memory")
    where = "memory://ads/incoming/"
    with pytest.raises(FileNotFoundError, match="there is no folder memory://ads/incoming"):
        follow(where.rstrip("/"))
    data = follow(where)
    batches = data.iter_batches(SCHEMA, 2)
    assert len(next(batches)) == 0
    memory.pipe("/ads/incoming/day_2.csv", b"click,price,city\n1,1,Bern\n0,2,Bern\n1,3,Bern\n")
    assert next(batch for batch in batches if len(batch)).numerical[:, 0].tolist() == [1, 2]
    position = data.position()
    assert position["name"] == "/ads/incoming/day_2.csv"

    def unreachable(where, **_):
        raise SourceError(f"{where} cannot be reached: try later")

    with monkeypatch.context() as broken:
        broken.setattr("daes.stream.follow.find_files", unreachable)
        assert next(batches).numerical[:, 0].tolist() == [3]
        assert [len(next(batches)) for _ in range(2)] == [0, 0]
    assert caplog.text.count("cannot be reached: try later; trying again") == 1
    memory.pipe("/ads/incoming/day_1.csv", b"click,price,city\n1,4,Bern\n")
    assert next(batch for batch in batches if len(batch)).numerical[:, 0].tolist() == [4]
    again = follow(where)
    again.seek(position)
    assert take(again, 2, batch_size=1) == [[3], [4]]
    memory.rm("/ads", recursive=True)


def test_a_limit_ends_the_stream(tmp_path, quick):
    write(tmp_path, "1.csv", [1, 2, 3])
    batches = follow(tmp_path, limit=2).iter_batches(SCHEMA, 8)
    assert [len(batch) for batch in batches] == [2]


def test_rows_are_not_held_back_for_a_full_batch(tmp_path, quick):
    write(tmp_path, "1.csv", [1])
    started = time.monotonic()
    assert take(Prefetch(follow(tmp_path), 2), 1, batch_size=1000) == [[1]]
    assert time.monotonic() - started < 5


def test_bad_rows_and_bad_files_can_be_left_out(tmp_path, quick):
    (tmp_path / "1.csv").write_text("click,price,city\n1,x,Bern\n0,2,Bern\n5,3,Bern\n")
    (tmp_path / "2.parquet").write_bytes(b"PAR1 and no more")
    write(tmp_path, "3.csv", [4])
    data = follow(tmp_path, bad_rows="skip")
    assert [price for piece in take(data, 2) for price in piece] == [2, 4]
    assert [(row.path.rpartition("/")[2], row.row) for row in data.bad_rows.first] == [
        ("1.csv", 1),
        ("1.csv", 3),
        ("2.parquet", 1),
    ]
    with pytest.raises(SourceError, match=r"row 1 of .*1\.csv: column 'price' must be a number, got 'x'"):
        take(follow(tmp_path), 1)


def test_only_a_folder_can_be_followed(tmp_path):
    write(tmp_path, "1.csv", [1])
    with pytest.raises(ValueError, match="a folder or a glob is needed to wait for files"):
        follow(tmp_path / "1.csv")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        follow(tmp_path / "none")
    with pytest.raises(TypeError, match="key is for messages of a topic, got 'id'"):
        follow(tmp_path, key="id")
    with pytest.raises(ValueError, match="read by one process"):
        follow(tmp_path, shard=(0, 2))
    with pytest.raises(TypeError, match="max_wait is for streams without an end"):
        Dataset.open(tmp_path, max_wait=1.0)
    with pytest.raises(ValueError, match="max_wait must be positive and at most 60 seconds, got 0"):
        Dataset.open(tmp_path, follow=True, max_wait=0.0)


def test_a_file_that_is_damaged_inside_is_skipped_from_there_on(tmp_path, quick):
    rows = pa.table({"click": [0.0] * 4, "price": [1.0, 2.0, 3.0, 4.0], "city": ["Bern"] * 4})
    pq.write_table(rows, tmp_path / "1.parquet", row_group_size=2)
    start = pq.ParquetFile(tmp_path / "1.parquet").metadata.row_group(1).column(1).data_page_offset
    whole = (tmp_path / "1.parquet").read_bytes()
    (tmp_path / "1.parquet").write_bytes(whole[:start] + b"\xff" * 20 + whole[start + 20 :])
    pq.write_table(rows.slice(0, 1), tmp_path / "2.parquet")
    data = follow(tmp_path, bad_rows="skip")
    read = [price for batch in take(data, 1) for price in batch]
    assert read[-1] == 1.0
    assert "the file cannot be read from here on" in data.bad_rows.first[0].reason


def test_a_category_may_have_another_type_in_each_file(tmp_path, quick):
    for number, ids in enumerate(([7, 8], ["7", "x"])):
        pq.write_table(pa.table({"click": [0, 1], "price": [1, 2], "city": ids}), tmp_path / f"{number}.parquet")
    batch = next(iter(follow(tmp_path).iter_batches(SCHEMA, 4)))
    assert batch.categorical[:, 0].tolist() == [hash_text(text) for text in ("7", "8", "7", "x")]


def test_the_columns_are_those_of_the_first_file_that_tells_them(tmp_path, quick):
    (tmp_path / "1.csv").write_text("click,price,city\n")
    write(tmp_path, "2.csv", [1])
    data = Dataset.open(tmp_path, follow=True, max_wait=0.05)
    assert (data.schema, take(data, 1)) == (SCHEMA, [[1]])
    (tmp_path / "1.csv").write_text("click,price,city\n1,2\n")
    (tmp_path / "1.csv.gz").write_bytes(b"no gzip")
    data = Dataset.open(tmp_path, follow=True, max_wait=0.05, bad_rows="skip")
    assert (data.schema, take(data, 1), data.bad_rows.count) == (SCHEMA, [[1]], 2)
    with pytest.raises(SourceError, match=r"row 1 of .*1\.csv: 3 fields are expected; there are 2"):
        Dataset.open(tmp_path, follow=True, max_wait=0.05)


def test_a_link_to_nothing_is_warned_of_and_followed_once_there_is_something(tmp_path, quick):
    write(tmp_path, "1.csv", [1])
    (tmp_path / "2.csv").symlink_to(tmp_path / "elsewhere" / "2.csv")
    batches = follow(tmp_path).iter_batches(SCHEMA, 1)
    with pytest.warns(UserWarning, match=r"2\.csv is a link to a file that is not there"):
        assert next(batches).numerical.tolist() == [[1]]
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere", "2.csv", [2])
    with pytest.warns(UserWarning, match=r"links to files that are read anyway are left out: .*2\.csv"):
        assert next(batch for batch in batches if len(batch)).numerical.tolist() == [[2]]


def test_columns_are_shown_whatever_their_types_in_each_file(tmp_path, quick):
    (tmp_path / "1.csv").write_text("click,price,zip\n1,2.5,3008\n0,1,8000\n")
    (tmp_path / "2.csv").write_text("click,price,zip\n1,free,AB12\n0,3,3008\n")
    data = Dataset.open(
        tmp_path, numerical=["price"], categorical=["zip"], bad_rows="skip", follow=True, max_wait=0.05, limit=4
    )
    shown = {column.name: column.examples for column in summarize_columns(data)}
    assert shown == {"click": ("1", "0"), "price": ("2.5", "1", "free"), "zip": ("3008", "8000", "AB12")}
    batch = next(batch for batch in data.from_start().iter_batches(data.schema, 4) if len(batch))
    assert batch.numerical[:, 0].tolist() == [2.5, 1, 3]
    assert data.bad_rows.count == 1

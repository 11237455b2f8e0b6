import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from daes.stream.cursor import SourceError
from daes.stream.cursor_source import CursorSource
from daes.stream.prefetch import Prefetch
from daes.stream.source import ReaderSource, TableSource

TABLE = pa.table({"a": list(range(100))})


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "daes-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert threads() == []


@pytest.fixture(autouse=True)
def batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CursorSource, "_rows_at_once", 1)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def values(tables: Any) -> list[int]:
    return [value for table in tables for value in table["a"].to_pylist()]


@pytest.mark.parametrize("depth", [1, 3, 1000])
def test_everything_in_order(depth: int) -> None:
    source = Prefetch(TableSource(TABLE), depth=depth)
    assert values(source.iter_tables(None, 7)) == list(range(100))
    assert source.position()["row"] == 100


def test_the_thread_reads_ahead_no_further_than_the_queue() -> None:
    inner = TableSource(TABLE)
    source = Prefetch(inner, depth=3)
    tables = source.iter_tables(None, 1)
    next(tables)
    wait_for(lambda: inner.position()["row"] == 5)  # one taken, three waiting, one in the thread's hand
    time.sleep(0.02)
    assert inner.position()["row"] == 5
    assert source.position()["row"] == 1
    tables.close()


def test_leaving_a_loop_ends_the_thread_and_the_next_goes_on_from_there() -> None:
    inner = TableSource(TABLE)
    source = Prefetch(inner, depth=2)
    for table in source.iter_tables(None, 10):
        if table["a"][0].as_py() == 30:
            break
    assert source.position()["row"] == 40
    wait_for(lambda: threads() == [])
    assert inner.position()["row"] <= 70  # it does not read to the end for nobody
    assert values(source.iter_tables(None, 10)) == list(range(40, 100))


def test_closing_dropping_and_never_starting() -> None:
    source = Prefetch(TableSource(TABLE), depth=2)
    source.iter_tables(None, 10)
    assert threads() == []
    tables = source.iter_tables(None, 10)
    next(tables)
    assert len(threads()) == 1
    del tables
    wait_for(lambda: threads() == [])
    tables = source.iter_tables(None, 10)
    assert values([next(tables)]) == list(range(10, 20))
    tables.close()
    assert threads() == []


def test_seek_stops_the_thread_first() -> None:
    source = Prefetch(TableSource(TABLE), depth=2)
    old = source.iter_tables(None, 10)
    next(old)
    source.seek({"row": 95})
    assert threads() == []
    with pytest.raises(RuntimeError, match="this iterator has ended"):
        next(old)
    assert values(source.iter_tables(None, 10)) == [95, 96, 97, 98, 99]


def test_an_error_comes_where_its_batch_would_have() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.slice(0, 20).to_batches()
        raise OSError("the disk is gone")

    source = Prefetch(ReaderSource(pa.RecordBatchReader.from_batches(TABLE.schema, batches())), depth=50)
    tables = source.iter_tables(None, 4)
    assert values(next(tables) for _ in range(5)) == list(range(20))
    with pytest.raises(OSError, match="the disk is gone"):
        next(tables)
    assert source.position()["row"] == 20


def test_wrong_arguments_are_told_at_once() -> None:
    source = Prefetch(TableSource(TABLE))
    with pytest.raises(ValueError, match="batch_size must be a positive integer"):
        source.iter_tables(None, 0)
    with pytest.raises(SourceError, match="there is no column 'b'"):
        source.iter_tables(["b"], 4)
    with pytest.raises(ValueError, match="depth must be a positive integer, got 0"):
        Prefetch(TableSource(TABLE), depth=0)

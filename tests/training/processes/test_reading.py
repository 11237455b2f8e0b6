"""Columns that several processes read together, against the same rows read by each alone."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.embedding.processes import ProcessesDisagreeError
from daes.stream.cursor import BatchError
from daes.stream.dataset import Dataset
from daes.stream.parquet import ParquetSource
from daes.training.processes import Processes
from daes.training.processes import reading as reading_module
from daes.training.processes.reading import DividedReading, read_together

ROWS, BATCH = 230, 7
FEATURES = ("price", "age", "city", "device", "day")


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    monkeypatch.setattr(reading_module, "_ROWS_AT_ONCE", 30)  # 28 rows of four batches


@pytest.fixture
def clicks(tmp_path):
    """Two files in directories that are a column, with weights and times."""
    random = np.random.default_rng(0)
    table = pa.table(
        {
            "click": random.integers(0, 2, ROWS),
            "price": pa.array(random.lognormal(size=ROWS), mask=random.random(ROWS) < 0.1),
            "age": random.integers(18, 90, ROWS),
            "city": [f"city {number}" for number in random.integers(0, 9, ROWS)],
            "device": random.integers(0, 4, ROWS),
            "at": np.arange(ROWS),
            "worth": random.random(ROWS),
        }
    )
    for day, (start, stop) in enumerate(((0, 101), (101, ROWS))):
        (tmp_path / f"day={day}").mkdir()
        part = table.slice(start, stop - start)
        pq.write_table(part, tmp_path / f"day={day}" / "part.parquet", row_group_size=40)
    return tmp_path


def _open(path, **options):
    columns = {"numerical": ["price", "age"], "categorical": ["city", "device", "day"]}
    return Dataset.open(path, label="click", time="at", weight="worth", **columns, **options)


def _read(rank, path, stop, options):
    """All rows until row `stop` and, by another object, from there on; both as a process alone reads them."""
    data, processes = _open(path, **options), Processes()
    columns = set()
    original = ParquetSource._file_cursor

    def noting(self, file, types, *arguments):
        columns.update(types)
        return original(self, file, types, *arguments)

    ParquetSource._file_cursor = noting
    found, position = [], {"row": 0}
    for until in (stop, ROWS + 1):
        source = read_together(data, processes, prefetch=rank % 2)
        assert isinstance(source, DividedReading)
        source.seek(position)
        for batch in source.iter_batches(data.schema, BATCH):
            found.append(batch)
            position = source.position()
            if position["row"] >= until:
                break
    ParquetSource._file_cursor = original
    alone = list(data.batches(BATCH))
    assert len(found) == len(alone)
    assert all(one.equals(other) for one, other in zip(found, alone, strict=True))
    return columns, int(position["row"])


@pytest.mark.parametrize("world", [2, 3, 7])
@pytest.mark.parametrize("options", [{}, {"limit": 151}], ids=["all", "limited"])
def test_the_same_rows_with_a_share_of_the_columns(world, options, clicks, in_processes):
    together = in_processes(world, _read, clicks, 70, options)
    for rank, (columns, row) in enumerate(together):
        # What is a directory's name is no column of the file; a process without a feature of its own reads the first.
        own = set(FEATURES[rank::world] or FEATURES[:1]) - {"day"} or {"click"}
        assert columns == {"click", "at", "worth"} | own
        assert row == options.get("limit", ROWS)


def _with_errors(rank, path, options):
    """The batches, or what is said of one that is refused; which rows each process read alone, and the bad rows."""
    data = _open(path, **options)
    source = read_together(data, Processes())
    found = []
    while True:
        try:
            for batch in source.iter_batches(data.schema, BATCH):
                found.append((batch.numerical[:, 1].tolist(), source.position()["row"]))
            return found, source._alone, [bad.row for bad in data.bad_rows.first]
        except BatchError as error:
            source.seek(error.next_position)
            found.append((str(error), error.next_position["row"]))


def _spoil(path, column, values):
    """Put values at some rows of the first file."""
    file = path / "day=0" / "part.parquet"
    table = pq.ParquetFile(file).read()
    changed = table[column].to_pylist()
    for row, value in values.items():
        changed[row] = value
    table = table.set_column(table.schema.names.index(column), column, pa.array(changed))
    pq.write_table(table, file, row_group_size=40)


@pytest.mark.parametrize("policy", ["error", "skip"])
@pytest.mark.parametrize(("column", "values"), [("click", {30: 5, 41: 7, 55: 2}), ("worth", {33: None})])
def test_rows_that_are_refused_are_those_of_one_process(policy, column, values, clicks, in_processes):
    _spoil(clicks, column, values)
    first, second = in_processes(2, _with_errors, clicks, {"bad_rows": policy})
    assert first == second
    found, alone, bad = first
    assert alone == (28, 56)
    assert [row for _, row in found] == [*range(BATCH, ROWS, BATCH), ROWS]
    if policy == "skip":
        assert bad == [row + 1 for row in values]
        assert sum(len(rows) for rows, _ in found) == ROWS - len(values)
    else:
        said = [rows for rows, _ in found if isinstance(rows, str)]
        assert len(said) == len(values)
        assert all(f"row {row + 1} of" in one for row, one in zip(values, said, strict=True))


def _other_rows(rank, path):
    data = _open(path, limit=60 + 30 * rank)
    with pytest.raises(ProcessesDisagreeError, match=r"different numbers of rows \(4, 28\)"):
        list(read_together(data, Processes()).iter_batches(data.schema, BATCH))


def test_processes_with_other_rows(clicks, in_processes):
    in_processes(2, _other_rows, clicks)

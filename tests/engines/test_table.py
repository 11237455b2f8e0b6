from functools import partial

import numpy as np
import pytest

from daes.cli.column import open_numbers
from daes.engines import LocalEngine, start_engine, summarize_table
from daes.engines.base import EngineError, Failure, attempt, merge_good, result_of
from daes.engines.table import table_parts
from daes.stream.dataset import Dataset

LEVELS = np.linspace(0, 1, 11)


@pytest.mark.parametrize("name", ["clicks.parquet", "days"])
@pytest.mark.parametrize("parts", [1, 4, 50])
def test_every_row_is_read_once(folder, table, name, parts):
    data = open_numbers(str(folder / name), None)
    summary = summarize_table(data, parts=parts, size=10_000)
    assert summary.columns == ("price", "hour")
    price = table["price"].drop_null().to_numpy()
    assert summary.count.tolist() == [len(price), 6000]
    assert summary.skipped.tolist() == [6000 - len(price), 0]
    # With room for every value the sample is the column itself, whatever the parts are.
    np.testing.assert_array_equal(np.sort(summary.reservoir("price").sample), np.sort(price))
    np.testing.assert_array_equal(summary.reservoir("hour").ordered(), np.sort(table["hour"].to_numpy()))


def test_a_small_sample_is_within_its_error(folder, table):
    summary = summarize_table(open_numbers(str(folder / "clicks.parquet"), None), ["price"], parts=7, size=1000)
    ordered = np.sort(table["price"].drop_null().to_numpy())
    ranks = np.searchsorted(ordered, summary.quantile(LEVELS)[0], side="right") / len(ordered)
    assert np.abs(ranks - LEVELS).max() < 1.95 / np.sqrt(1000)  # Kolmogorov–Smirnov at 0.001


def test_a_csv_file_is_one_part(folder):
    assert len(table_parts(open_numbers(str(folder / "days"), None), 50)) == 3
    assert len(table_parts(open_numbers(str(folder / "days" / "day_0.csv"), None), 50)) == 1


def test_more_parts_than_rows():
    data = Dataset.open(_numbers(3), needs_label=False)
    assert [(part.start, part.stop) for part in table_parts(data, 9)] == [(0, 1), (1, 2), (2, 3)]


def test_no_rows():
    summary = summarize_table(Dataset.open(_numbers(0), needs_label=False), parts=4)
    assert summary.rows == 0
    assert np.isnan(summary.quantile([0.5])).all()


def test_a_table_without_numbers():
    import pyarrow as pa

    with pytest.raises(ValueError, match="must have a column of numbers"):
        summarize_table(Dataset.open(pa.table({"city": ["Bern"]}), needs_label=False))


def test_neighbours_are_merged_in_the_order_of_the_parts():
    merged = LocalEngine().map_merge(str, [0, 1, 2, 3, 4], lambda first, second: f"({first}{second})")
    assert merged == "(((01)(23))4)"


def test_an_unknown_engine():
    with pytest.raises(ValueError, match="engine must be one of local, ray, spark, got 'dask'"):
        start_engine("dask")


def test_a_failure_is_a_result_that_merging_keeps():
    failure = attempt(int, "one")
    assert isinstance(failure, Failure)
    join = partial(merge_good, lambda first, second: first + second)
    assert join(1, 2) == 3
    assert join(1, failure) is failure
    assert join(failure, 1) is failure
    with pytest.raises(EngineError, match="invalid literal for int"):
        result_of(failure)


def _numbers(rows):
    import pyarrow as pa

    return pa.table({"price": np.arange(float(rows))})

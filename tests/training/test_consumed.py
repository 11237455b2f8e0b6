"""A run that is resumed knows the rows it has read, and goes on where there are more."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.consumed import ConsumedRows, DataChangedError
from daes.training.run import train_run


def rows(count, seed=0):
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "click": random.integers(0, 2, count),
            "price": random.lognormal(size=count),
            "city": [f"city {number}" for number in random.integers(0, 20, count)],
        }
    )


def write(table, path):
    pa.csv.write_csv(table, path) if path.suffix == ".csv" else pq.write_table(table, path)
    return path


def train(what, folder, **options):
    config = TrainConfig(batch_size=100, checkpoint_every=200, window=500)
    return train_run(Dataset.open(what), folder, model={"backbone": "fnn", "dim": 4}, config=config, **options)


def weights(run):
    return (run.folder.model / "model.safetensors").read_bytes()


formats = pytest.mark.parametrize("ending", ["csv", "parquet"])


@formats
def test_a_file_that_has_grown_is_read_on(tmp_path, ending):
    table, path = rows(1000), tmp_path / f"clicks.{ending}"
    write(table.slice(0, 600), path)
    train(path, tmp_path / "run", sample_rows=300)
    write(table, path)
    grown = train(path, tmp_path / "run", sample_rows=300, resume=True)
    assert (grown.resumed_at, grown.result.rows) == (600, 1000)
    assert weights(grown) == weights(train(path, tmp_path / "whole", sample_rows=300))


@formats
def test_a_sample_of_the_whole_file_stays_the_sample(tmp_path, ending):
    table, path = rows(1000), tmp_path / f"clicks.{ending}"
    write(table.slice(0, 250), path)
    first = train(path, tmp_path / "run")
    write(table, path)
    grown = train(path, tmp_path / "run", resume=True)
    assert (grown.resumed_at, grown.result.rows) == (250, 1000)
    assert grown.model.config == first.model.config


@formats
def test_a_new_file_that_matches_is_read_on_without_reading_the_others_again(tmp_path, ending, monkeypatch):
    table = rows(1000)
    write(table.slice(0, 600), tmp_path / f"day_9.{ending}")
    where = str(tmp_path / f"day_*.{ending}")
    train(where, tmp_path / "run", sample_rows=300)
    write(table.slice(600), tmp_path / f"day_10.{ending}")
    with monkeypatch.context() as patch:
        patch.setattr(ConsumedRows, "read", lambda *_, **__: pytest.fail("rows were read again"))
        grown = train(where, tmp_path / "run", sample_rows=300, resume=True)
    assert (grown.resumed_at, grown.result.rows) == (600, 1000)
    assert weights(grown) == weights(train(where, tmp_path / "whole", sample_rows=300))
    write(table.slice(0, 100), tmp_path / f"day_1.{ending}")
    with pytest.raises(DataChangedError, match="files after the existing ones"):
        train(where, tmp_path / "run", sample_rows=300, resume=True)


@formats
def test_a_file_named_from_another_folder_is_not_read_again(tmp_path, ending, monkeypatch):
    write(rows(600), tmp_path / f"clicks.{ending}")
    monkeypatch.chdir(tmp_path)
    train(f"clicks.{ending}", "run")
    monkeypatch.setattr(ConsumedRows, "read", lambda *_, **__: pytest.fail("rows were read again"))
    assert train(tmp_path / f"clicks.{ending}", "run", resume=True).resumed_at == 600


@formats
def test_files_that_were_moved_are_read_on(tmp_path, ending):
    table, old, new = rows(1000), tmp_path / "old", tmp_path / "new"
    old.mkdir()
    write(table.slice(0, 400), old / f"day_9.{ending}")
    write(table.slice(400, 200), old / f"day_10.{ending}")
    train(old, tmp_path / "run", sample_rows=300)
    old.rename(new)
    write(table.slice(600), new / f"day_11.{ending}")
    grown = train(str(new / f"*.{ending}"), tmp_path / "run", sample_rows=300, resume=True)
    assert (grown.resumed_at, grown.result.rows) == (600, 1000)
    assert weights(grown) == weights(train(new, tmp_path / "whole", sample_rows=300))
    assert grown.folder.read("config")["data"]["what"] == str(new / f"*.{ending}")


@formats
@pytest.mark.parametrize("change", ["price", "city", "click", "shorter"])
def test_rows_that_have_changed_are_noticed(tmp_path, ending, change):
    table, path = rows(600), tmp_path / f"clicks.{ending}"
    write(table, path)
    train(path, tmp_path / "run", sample_rows=300)
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    altered = table.slice(0, 500)
    if change != "shorter":
        values = table.column(change).to_pylist()
        values[450] = {"price": 1e9, "city": "Atlantis", "click": 1 - int(values[450] == 1)}[change]
        altered = table.set_column(table.column_names.index(change), change, pa.array(values))
    write(altered, path)
    with pytest.raises(DataChangedError, match=r"clicks\.\w+ does not begin with the 600 rows"):
        train(path, tmp_path / "run", sample_rows=300, resume=True)
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


def test_a_file_that_was_only_touched_is_the_same(tmp_path):
    path = write(rows(600), tmp_path / "clicks.csv")
    train(path, tmp_path / "run")
    os.utime(path, (1, 1))
    assert train(path, tmp_path / "run", resume=True).resumed_at == 600


def test_rows_in_memory_are_compared_too(tmp_path):
    train(rows(600), tmp_path / "run")
    with pytest.raises(DataChangedError, match="does not begin with the 600 rows"):
        train(rows(600, seed=1), tmp_path / "run", resume=True)
    assert train(rows(600), tmp_path / "run", resume=True).resumed_at == 600


def test_rows_that_come_earlier_in_time_than_those_read(tmp_path):
    times = np.random.default_rng(0).permutation(600)

    def train_on(at, **options):
        table = rows(600).slice(0, len(at)).append_column("at", pa.array(at))
        data, _ = Dataset.open(write(table, tmp_path / "clicks.csv"), time="at").in_time_order()
        model = {"backbone": "fnn", "dim": 4}
        return train_run(data, tmp_path / "run", model=model, sample_rows=100, **options)

    train_on(times[:500] + 1000)
    with pytest.raises(
        DataChangedError, match=r"clicks\.csv, sorted by 'at', does not begin with the 500 rows"
    ) as raised:
        train_on(np.concatenate([times[:500] + 1000, times[500:]]), resume=True)
    assert str(raised.value).endswith("rows may only be added if their times are not earlier than those")
    assert train_on(np.concatenate([times[:500] + 1000, times[500:] + 2000]), resume=True).result.rows == 600


def test_rows_that_were_left_out_are_left_out_of_the_comparison(tmp_path):
    lines = [f"{number % 2},{number / 7},a\n" for number in range(1000)]
    lines[150], lines[420] = "7,1,a\n", "1,x,a\n"
    path, config = tmp_path / "clicks.csv", TrainConfig(batch_size=100, bad_batch="skip")

    def train_on(count, folder, **options):
        path.write_text("click,price,city\n" + "".join(lines[:count]))
        data = Dataset.open(path, numerical=["price"], bad_rows="skip")
        model = {"backbone": "fnn", "dim": 4}
        return train_run(data, tmp_path / folder, model=model, config=config, sample_rows=100, **options)

    first = train_on(602, "run")
    grown = train_on(1000, "run", resume=True)
    assert (first.result.rows, grown.resumed_at, grown.result.rows) == (600, 600, 998)
    assert grown.bad_rows.count == 2
    lines[100] = "0,5,b\n"
    with pytest.raises(DataChangedError, match="does not begin with the 999 rows"):
        train_on(1000, "run", resume=True)


def test_rows_that_were_left_out_count_once_however_their_files_are_named(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for number in (1, 2):
        lines = [f"{row % 2},{'x' if row % 50 == 7 else row}\n" for row in range(300)]
        (tmp_path / "data" / f"{number}.csv").write_text("click,price\n" + "".join(lines))

    def train_on(what, **options):
        data = Dataset.open(what, numerical=["price"], bad_rows="skip")
        return train_run(data, tmp_path / "run", model={"backbone": "fnn", "dim": 4}, sample_rows=100, **options)

    monkeypatch.chdir(tmp_path)
    assert train_on("data").bad_rows.count == 12
    assert train_on(tmp_path / "data", resume=True).bad_rows.count == 12
    (tmp_path / "data").rename(tmp_path / "moved")
    again = train_on("moved", resume=True).bad_rows
    assert {(row.path, row.row) for row in again.first} == {
        (f"moved/{number}.csv", row + 1) for number in (1, 2) for row in range(300) if row % 50 == 7
    }

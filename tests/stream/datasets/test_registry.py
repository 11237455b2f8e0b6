"""Datasets by name."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream.dataset import Dataset
from daes.stream.datasets import DATASETS, DatasetEntry
from daes.stream.parquet import ParquetSource
from daes.stream.schema import Schema
from daes.stream.source import TableSource

TABLE = pa.table({"click": [0, 1, 1], "price": [1.0, 2.0, 3.0], "city": ["x", "y", "z"]})
SCHEMA = Schema("click", ("price",), ("city",))
CALLS: list[tuple[tuple[str, ...], dict[str, object]]] = []


def open_toy(*path: str, **options: object) -> Dataset:
    CALLS.append((path, options))
    return Dataset(TableSource(TABLE), SCHEMA, name="toy", notes=["made of three rows"])


def test_datasets_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opener = f"{__name__}:open_toy"
    monkeypatch.setitem(DATASETS, "toy", DatasetEntry("toy", "Toy", opener))
    monkeypatch.setitem(DATASETS, "mine", DatasetEntry("mine", "Mine", opener, "path"))
    CALLS.clear()
    data = Dataset.open("toy", rows=5)
    assert (data.schema, data.name, data.notes, data.what) == (SCHEMA, "toy", ("made of three rows",), "toy")
    assert len(data.sample(9)) == 3
    Dataset.open("mine:a/b:c", seed=3)
    assert CALLS == [((), {"rows": 5}), (("a/b:c",), {"seed": 3})]
    assert Dataset.open("toy", schema=Schema(None, ("price",), ())).schema == Schema(None, ("price",), ())
    with pytest.raises(ValueError, match="mine needs the path of its files, as in mine:PATH"):
        Dataset.open("mine")
    for name, value in {"separator": ";", "format": "csv", "follow": True}.items():
        with pytest.raises(TypeError, match=f"{name} is for files, got {value!r} and the dataset toy"):
            Dataset.open("toy", **{name: value})
    with pytest.raises(ValueError, match="toy takes no path, got toy:x"):
        Dataset.open("toy:x")
    with pytest.raises(
        ValueError, match=r"there is no dataset 'tog'; there are: criteo:PATH, automl:PATH, flights, .*toy"
    ):
        Dataset.open("tog:x")
    with pytest.raises(
        FileNotFoundError, match="there is no file toys, and no dataset of that name; there are: criteo"
    ):
        Dataset.open("toys")
    pq.write_table(TABLE, tmp_path / "toy")
    monkeypatch.chdir(tmp_path)
    assert isinstance(Dataset.open("./toy").source, ParquetSource)


def test_the_simulated_stream_is_opened_by_name_and_length() -> None:
    data = Dataset.open("adstream:3_000", seed=4)
    assert data.num_rows == 3000
    assert data.source.seed == 4
    with pytest.raises(ValueError, match="adstream takes a number of rows, as in adstream:200000, got adstream:x"):
        Dataset.open("adstream:x")


def test_the_code_of_a_dataset_is_loaded_when_it_is_opened() -> None:
    loaded = (
        "import sys, daes.stream; "
        "print([name for name in sys.modules if name.startswith(('daes.stream.datasets.', 'daes.simulation'))])"
    )
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_dataset_is_known_by_its_name() -> None:
    for name, info in DATASETS.items():
        assert name == info.name
        assert info.usage in (name, f"{name}:PATH", f"{name}[:ROWS]")

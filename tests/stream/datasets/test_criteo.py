import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream.batch import Batch
from daes.stream.cursor import SourceError
from daes.stream.dataset import Dataset
from daes.stream.datasets.criteo import CRITEO, open_criteo
from daes.stream.hashing import hash_text


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def only_batch(stream: Dataset) -> Batch:
    (batch,) = stream.iter_batches(stream.schema, 1_000_000)
    return batch


def criteo_cells(row: int, labelled: bool = True) -> list[str]:
    integers = ["" if (row + column) % 4 == 0 else str(row * column - 3) for column in range(13)]
    categories = ["" if (row + column) % 5 == 0 else f"{row * 31 + column:08x}" for column in range(26)]
    return [str(row % 2)] * labelled + integers + categories


def criteo_text(rows: range, labelled: bool = True) -> str:
    return "".join("\t".join(criteo_cells(row, labelled)) + "\n" for row in rows)


def check_criteo(stream: Dataset, rows: Sequence[int]) -> None:
    batch = only_batch(stream)
    assert len(batch) == len(rows)
    for index, row in enumerate(rows):
        cells = criteo_cells(row)
        want = [np.nan if cell == "" else float(cell) for cell in cells[1:14]]
        np.testing.assert_array_equal(batch.numerical[index], np.array(want, np.float32))
        assert batch.categorical[index].tolist() == [0 if cell == "" else hash_text(cell) for cell in cells[14:]]
        assert batch.label is None or batch.label[index] == row % 2


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz", "day_0", "day_0.gz", "sample.tsv"])
def test_criteo_as_published(tmp_path: Path, name: str) -> None:
    stream = open_criteo(write(tmp_path / name, criteo_text(range(20))))
    assert (stream.schema, stream.name) == (CRITEO, "criteo")
    check_criteo(stream, range(20))


def test_criteo_folders_and_globs(tmp_path: Path) -> None:
    for day in (0, 2, 10):
        write(tmp_path / "log" / f"day_{day}.gz", criteo_text(range(day, day + 2)))
    write(tmp_path / "log" / "readme.txt", "read me")
    rows = [0, 1, 2, 3, 10, 11]
    for where in (tmp_path / "log", tmp_path / "log" / "day_*"):
        check_criteo(open_criteo(where), rows)
    write(tmp_path / "kaggle" / "train.txt", criteo_text(range(5)))
    write(tmp_path / "kaggle" / "test.txt", criteo_text(range(5), labelled=False))
    check_criteo(open_criteo(tmp_path / "kaggle"), range(5))
    write(tmp_path / "other" / "a.txt", "x")
    write(tmp_path / "other" / "b.txt", "x")
    with pytest.raises(FileNotFoundError, match=r"must contain \*\.parquet, day_\* or train\.txt, got a\.txt, b\.txt"):
        open_criteo(tmp_path / "other")


def test_criteo_without_labels(tmp_path: Path) -> None:
    stream = open_criteo(write(tmp_path / "test.txt", criteo_text(range(6), labelled=False)))
    assert stream.schema.label is None
    check_criteo(stream, range(6))


def test_criteo_parquet(tmp_path: Path) -> None:
    rows = [criteo_cells(row) for row in range(20)]
    columns = {
        name: pa.array([row[number] or None for row in rows]).cast(pa.float32() if number < 14 else pa.string())
        for number, name in enumerate(CRITEO.columns)
    }
    pq.write_table(pa.table(columns), tmp_path / "criteo.parquet")
    check_criteo(open_criteo(tmp_path / "criteo.parquet"), range(20))
    del columns["C7"]
    pq.write_table(pa.table(columns), tmp_path / "less.parquet")
    with pytest.raises(SourceError, match=r"less\.parquet must have the columns .* \['C7'\] are missing"):
        open_criteo(tmp_path / "less.parquet")


def test_criteo_bad_rows(tmp_path: Path) -> None:
    text = criteo_text(range(3)) + "1\toops\n" + criteo_text(range(3, 6))
    path = write(tmp_path / "train.txt", text)
    with pytest.raises(SourceError, match=r"^row 4 of .*train\.txt: 40 fields are expected; there are 2"):
        only_batch(open_criteo(path))
    check_criteo(Dataset.open(f"criteo:{path}", bad_rows="skip"), range(6))
    with pytest.raises(SourceError, match=r"must have 40 fields per row, or 39 without labels; the first has 3"):
        open_criteo(write(tmp_path / "three.txt", "1\t2\t3\n"))

from pathlib import Path

import numpy as np
import pytest

from daes.stream.batch import Batch
from daes.stream.cursor import SourceError
from daes.stream.dataset import Dataset
from daes.stream.datasets.automl import open_automl
from daes.stream.hashing import hash_text


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def only_batch(stream: Dataset) -> Batch:
    (batch,) = stream.iter_batches(stream.schema, 1_000_000)
    return batch


TYPES = ["Categorical", "Numerical", "Time", "Multi-value", "Numerical", "Multi-value", "Categorical"]
ROWS = [
    ["007", "0.5", "1467331200", "3,1,4", "NaN", "12", "a"],
    ["NaN", "-2", "1467331201.7", "15", "7", "NaN", "b"],
    ["8", "1e3", "NaN", "NaN", "0", "5,5", "c"],
]


@pytest.fixture
def automl(tmp_path: Path) -> Path:
    folder = tmp_path / "rl"
    write(folder / "rl_feat.type", "\n".join(TYPES) + "\n")
    write(
        folder / "rl_public.info",
        "name = 'rl'\ntask = 'binary.classification'\ntarget_num =     1\nis_sparse =     0\n",
    )
    for number, part in enumerate(("train1", "train2", "train10", "test1", "test2")):
        rows = [[*row[:1], f"{number}.{index}", *row[2:]] for index, row in enumerate(ROWS)]
        write(folder / f"rl_{part}.data", "".join(" ".join(row) + "\n" for row in rows))
        write(folder / f"rl_{part}.solution", "".join(f"{(number + index) % 2}\n" for index in range(len(rows))))
    return folder


def test_automl_columns_and_values(automl: Path) -> None:
    stream = open_automl(automl)
    assert stream.name == "automl:rl"
    assert stream.notes == ()
    assert stream.schema.numerical == ("I1", "I2")
    assert stream.schema.categorical == ("C1", "C2", "M1", "M2")
    assert (stream.schema.label, stream.schema.time) == ("label", "T1")
    batch = only_batch(stream)
    # Training batches by number, then test batches: the first numerical column says which file and row it is.
    want = [float(f"{file}.{row}") for file in range(5) for row in range(3)]
    np.testing.assert_array_equal(batch.numerical[:, 0], np.array(want, np.float32))
    np.testing.assert_array_equal(batch.numerical[:3, 1], np.array([np.nan, 7, 0], np.float32))
    assert batch.label is not None
    assert batch.label.tolist() == [(file + row) % 2 for file in range(5) for row in range(3)]
    assert batch.time is not None
    assert batch.time[:3].tolist() == [1467331200, 1467331201, 0]
    categories = [["007", "a", "3", "12"], [None, "b", "15", None], ["8", "c", None, "5"]]
    for row, cells in enumerate(categories):
        assert batch.categorical[row].tolist() == [0 if cell is None else hash_text(cell) for cell in cells]


@pytest.mark.parametrize("shard", [None, (1, 2)])
def test_automl_resumes(automl: Path, shard: tuple[int, int] | None) -> None:
    stream = Dataset.open(f"automl:{automl}", shard=shard)
    whole = [batch.numerical[:, 0].tolist() for batch in stream.iter_batches(stream.schema, 2)]
    stream.seek({"row": 0})
    for number, _ in enumerate(stream.iter_batches(stream.schema, 2), start=1):
        again = Dataset.open(f"automl:{automl}", shard=shard)
        again.seek(stream.position())
        assert [batch.numerical[:, 0].tolist() for batch in again.iter_batches(stream.schema, 2)] == whole[number:]


def test_automl_solutions_elsewhere_or_nowhere(automl: Path, tmp_path: Path) -> None:
    for part in ("test1", "test2"):
        (tmp_path / "ref").mkdir(exist_ok=True)
        (automl / f"rl_{part}.solution").rename(tmp_path / "ref" / f"rl_{part}.solution")
    assert len(only_batch(open_automl(automl, solutions=tmp_path / "ref"))) == 15
    stream = open_automl(automl)
    assert len(only_batch(stream)) == 9
    assert stream.notes == ("2 files have no solution and were left out: rl_test1.data, rl_test2.data",)
    for path in automl.glob("*.solution"):
        path.unlink()
    stream = open_automl(automl)
    assert stream.schema.label is None
    assert len(only_batch(stream)) == 15


@pytest.mark.parametrize(("separator", "end"), [("\t", "\n"), (" ", " \n"), ("\t", "\t\r\n")])
def test_automl_separators(automl: Path, separator: str, end: str) -> None:
    want = only_batch(open_automl(automl))
    for path in automl.glob("*.data"):
        path.write_bytes(path.read_text().replace(" ", separator).replace("\n", end).encode())
    assert only_batch(open_automl(automl)).equals(want)


def test_automl_rows_and_labels_must_match(automl: Path) -> None:
    solution = automl / "rl_train2.solution"
    text = solution.read_text()
    solution.write_text(text + "1\n")
    with pytest.raises(SourceError, match=r"rl_train2\.data has 3 rows; its solution has more"):
        only_batch(open_automl(automl))
    solution.write_text(text[:-2])
    with pytest.raises(SourceError, match=r"rl_train2\.data has more rows than its solution has labels: 2"):
        only_batch(open_automl(automl))


def test_automl_errors(automl: Path, tmp_path: Path) -> None:
    with (automl / "rl_train1.data").open("a") as out:
        out.write("1 2 3\n")
    with pytest.raises(SourceError, match=r"^row 4 of .*rl_train1\.data: 7 fields are expected; there are 3"):
        only_batch(open_automl(automl))
    write(automl / "rl_public.info", "is_sparse = 1\n")
    with pytest.raises(SourceError, match=r"rl_public\.info must say is_sparse = 0, got is_sparse = 1"):
        open_automl(automl)
    (automl / "rl_public.info").unlink()
    write(automl / "rl_feat.type", "Numerical\nOrdinal\n")
    with pytest.raises(SourceError, match=r"rl_feat\.type must name .* got 'Ordinal' in line 2"):
        open_automl(automl)
    (automl / "rl_feat.type").unlink()
    with pytest.raises(FileNotFoundError, match=r"rl_feat\.type"):
        open_automl(automl)
    write(tmp_path / "rl" / "ada_train1.data", "1\n")
    with pytest.raises(FileNotFoundError, match="and so on, got ada, rl"):
        open_automl(tmp_path / "rl")


def test_automl_further_times_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "x" / "x_feat.type", "Time\nTime\nNumerical\n")
    write(tmp_path / "x" / "x_train1.data", "2018-01-02 5 1\n2018-01-03 6 2\n")
    write(tmp_path / "x" / "x_train1.solution", "1\n0\n")
    stream = open_automl(tmp_path / "x")
    assert stream.notes == ("only the first of the time columns is used: T1, T2",)
    times = only_batch(stream).time
    assert times is not None
    assert times.tolist() == [1514851200 * 10**9, 1514937600 * 10**9]

import os
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream import files
from daes.stream.cursor import SourceError
from daes.stream.files import find_files, is_directory_or_glob, natural_order
from daes.stream.parquet import ParquetSource


def names(where: object, root: Path) -> list[str]:
    return [Path(file.path).resolve().relative_to(root.resolve()).as_posix() for file in find_files(where)]  # type: ignore[arg-type]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "day_10.csv",
        "day_2.csv",
        "day_1.csv.gz",
        "x/day_3.csv",
        "x/y/day_4.csv",
        "_SUCCESS",
        ".hidden.csv",
        "x/_tmp/day_5.csv",
        "odd[1].csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")
    return tmp_path


def test_files_globs_and_directories(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(tree / "day_2.csv", tree) == ["day_2.csv"]
    assert names(str(tree / "day_*.csv"), tree) == ["day_2.csv", "day_10.csv"]
    assert names(tree / "day_?.csv*", tree) == ["day_1.csv.gz", "day_2.csv"]
    assert names(tree / "day_[!2]*.csv", tree) == ["day_10.csv"]
    assert names(tree / "*" / "day_*.csv", tree) == ["x/day_3.csv"]
    assert names(tree / "**" / "day_*.csv", tree) == [
        "day_2.csv",
        "day_10.csv",
        "x/_tmp/day_5.csv",
        "x/day_3.csv",
        "x/y/day_4.csv",
    ]
    assert names(tree, tree) == [
        "day_1.csv.gz",
        "day_2.csv",
        "day_10.csv",
        "odd[1].csv",
        "x/day_3.csv",
        "x/y/day_4.csv",
    ]
    assert names(tree / "odd[1].csv", tree) == ["odd[1].csv"]
    assert names([tree / "x", tree / "day_10.csv", tree / "day_2.csv"], tree) == [
        "x/day_3.csv",
        "x/y/day_4.csv",
        "day_10.csv",
        "day_2.csv",
    ]
    assert names((tree / "day_2.csv").as_uri(), tree) == ["day_2.csv"]
    assert names(f"file://{tree}/day_1*", tree) == ["day_1.csv.gz", "day_10.csv"]
    monkeypatch.chdir(tree)
    assert names("day_*.csv", tree) == ["day_2.csv", "day_10.csv"]
    assert names("x/../day_2.csv", tree) == ["day_2.csv"]
    monkeypatch.setenv("HOME", str(tree))
    assert names("~/day_2.csv", tree) == ["day_2.csv"]


def test_spaces_and_signs_in_a_file_url(tmp_path: Path) -> None:
    path = tmp_path / "a b%20+ü.csv"
    path.write_text("a\n1\n")
    assert [file.path for file in find_files(path.as_uri())] == [str(path)]


def test_nothing_found(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.csv"):
        find_files(tree / "none.csv")
    with pytest.raises(FileNotFoundError, match=r"no file matches .*/\*\.parquet"):
        find_files(tree / "*.parquet")
    with pytest.raises(FileNotFoundError, match=r"no file matches .*/nowhere/\*\.csv"):
        find_files(tree / "nowhere" / "*.csv")
    with pytest.raises(FileNotFoundError, match=r"no file in the directory .* ends in \.parquet or \.pq"):
        ParquetSource(tree)
    (tree / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"there is no file in the directory .*empty"):
        find_files(tree / "empty")
    with pytest.raises(ValueError, match=r"at least one path is needed, got \[\]"):
        find_files([])
    with pytest.raises(ValueError, match=r"day_\[9-0\]\.csv is not a glob: bad character range"):
        find_files(tree / "day_[9-0].csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(
        SourceError, match=r"pipe\.csv is neither a file nor a folder; a pipe can be read as standard in"
    ):
        find_files(tmp_path / "pipe.csv")
    assert not is_directory_or_glob(tmp_path / "pipe.csv")


def test_other_filesystems_through_fsspec() -> None:
    memory = fsspec.filesystem("memory")
    for number in (2, 10):
        with memory.open(f"/stream/part-{number}.parquet", "wb") as out:
            pq.write_table(pa.table({"a": [float(number)]}), out)
    try:
        source = ParquetSource("memory://stream/part-*.parquet")
        assert [table["a"].to_pylist() for table in source.iter_tables(None, 1)] == [[2.0], [10.0]]
        assert ParquetSource("memory://stream").num_rows == 2
    finally:
        memory.rm("/stream", recursive=True)
    with pytest.raises(SourceError, match=r"nosuch://x/y\.parquet cannot be read: .*nosuch"):
        find_files("nosuch://x/y.parquet")


def test_an_address_that_cannot_be_resolved_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match=r"^ftp://localhost:1/day\.csv cannot be reached: Connection refused$"):
        find_files("ftp://localhost:1/day.csv")
    with pytest.raises(SourceError, match=r"^s3a://b/day\.csv cannot be read: .*s3fs.*; otherwise copy the files"):
        find_files("s3a://b/day.csv")
    with pytest.raises(SourceError, match=r"^nosuch://x cannot be read: nosuch:// is not known; use a path or one of "):
        is_directory_or_glob("nosuch://x")

    class WithoutGoogle:
        @staticmethod
        def from_uri(url: str) -> None:
            assert url == "gs://ads/day.csv?retry_limit_seconds=60"
            raise pa.ArrowNotImplementedError("Got GCS URI but Arrow compiled without GCS support")

    monkeypatch.setattr(files.fs, "FileSystem", WithoutGoogle)
    with pytest.raises(SourceError, match=r"^gs://ads/day\.csv cannot be read: .*gcsfs.*; otherwise copy the files"):
        find_files("gs://ads/day.csv")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(SourceError, match=r"^gs://ads/day\.csv cannot be read: fsspec .*pip install fsspec"):
        find_files("gs://ads/day.csv")


def test_endings(tree: Path) -> None:
    (file,) = find_files(tree / "day_1.csv.gz")
    assert (file.name, file.suffix, file.compression) == ("day_1.csv.gz", ".csv", "gzip")


def test_natural_order_is_total() -> None:
    mixed = ["a10", "a9", "9", "10", "a", "", "a9b1", "a09"]
    assert sorted(mixed, key=natural_order) == ["", "9", "10", "a", "a09", "a9", "a9b1", "a10"]


@pytest.mark.parametrize("where", ["", "*.csv"])
def test_a_link_to_nothing_is_not_left_out(tmp_path: Path, where: str) -> None:
    (tmp_path / "1.csv").write_text("a\n1\n")
    (tmp_path / "2.csv").symlink_to(tmp_path / "elsewhere.csv")
    with pytest.raises(FileNotFoundError, match=r"2\.csv is a link to a file that is not there"):
        find_files(tmp_path / where)
    (tmp_path / "elsewhere.csv").write_text("a\n1\n")
    with pytest.warns(UserWarning, match=r"links to files that are read anyway are left out: .*2\.csv$"):
        assert names(tmp_path / where, tmp_path) == ["1.csv", "elsewhere.csv"]


def test_a_file_is_read_once_whatever_links_lead_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "day").mkdir(parents=True)
    for name in ("day/1.csv", "day/2.csv", "base"):
        (folder / name).write_text("a\n1\n")
    (folder / "latest.csv").symlink_to(folder / "day" / "2.csv")
    (folder / "day" / "all").symlink_to(folder, target_is_directory=True)
    (tmp_path / "linked").symlink_to(folder, target_is_directory=True)
    for where in (folder, tmp_path / "linked"):
        with pytest.warns(UserWarning, match=r"left out: .*day/all/day/1\.csv and \d+ more$"):
            assert names(where / "**" / "*.csv", where) == ["day/1.csv", "day/2.csv"]
    for name in ("3.csv", "4.csv"):  # the target is not read itself
        (folder / "day" / name).symlink_to(folder / "base")
    (folder / "day" / "5.csv").hardlink_to(folder / "day" / "1.csv")
    assert [file.name for file in find_files(folder / "day" / "*.csv")] == [f"{number}.csv" for number in range(1, 6)]

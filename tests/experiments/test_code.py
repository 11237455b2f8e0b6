import shutil
from pathlib import Path

import pytest

import daes
from daes.experiments import code
from daes.experiments.code import ROOMS, code_hash


@pytest.fixture
def package(tmp_path):
    """A copy of the sources, to change."""
    copy = tmp_path / "daes"
    shutil.copytree(Path(daes.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    yield copy
    code._hash.cache_clear()


def hash_of(package, *more):
    code._hash.cache_clear()
    return code._hash(package, (*ROOMS, *more))


def test_a_copy_is_the_same_code_wherever_it_lies(package):
    assert hash_of(package) == code_hash()
    assert hash_of(package, "paper") == code_hash("paper")


@pytest.mark.parametrize("name", ["training/trainer.py", "embedding/daes.py", "stream/hashing.py", "model.py"])
def test_code_that_decides_on_numbers_counts(package, name):
    before = hash_of(package)
    (package / name).write_bytes((package / name).read_bytes() + b"x = 1\n")
    assert hash_of(package) != before


def test_a_file_under_another_name_is_other_code(package):
    before = hash_of(package)
    (package / "metrics/auc.py").rename(package / "metrics/auc2.py")
    assert hash_of(package) != before


def test_what_does_not_decide_on_numbers_does_not_count(package):
    before = hash_of(package), hash_of(package, "paper")
    for name in ("paper/overall.py", "report/page.py", "cli/app.py", "classifier.py"):
        (package / name).write_text("x = 1\n")
    (package / "training/__pycache__").mkdir()
    (package / "training/__pycache__/auc.cpython-311.pyc").write_bytes(b"x")
    assert hash_of(package) == before[0]
    assert hash_of(package, "paper") != before[1]


def test_line_ends_do_not_count(package):
    before = hash_of(package)
    for path in package.rglob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert hash_of(package) == before


def test_cells_of_other_code_are_other_cells(monkeypatch):
    from daes.experiments import cell

    one = cell.Cell("ple", "ple", "fnn", seed=0)
    before = one.key("data")
    assert one.key("data") == before
    monkeypatch.setattr(cell, "code_hash", lambda: "other")
    assert one.key("data") != before

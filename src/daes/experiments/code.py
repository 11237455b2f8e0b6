"""Which code made a number: a hash of the sources, since versions stay the same while code changes."""

import hashlib
from functools import cache
from pathlib import Path

import daes

ROOMS = (
    "stream",
    "distribution",
    "embedding",
    "backbone",
    "model.py",
    "simulation",
    "metrics",
    "storage",
    "training",
    "experiments",
)
"""The sources, within the package, that decide on what a cell gives."""


def code_hash(*more: str) -> str:
    """A hash of the sources that decide on the numbers of cells, and of further ones, as `code_hash("paper")`.

    It is that of the first call in a process, as is the code that runs. Line ends do not matter.

    >>> code_hash() == code_hash(), code_hash() == code_hash("paper")
    (True, False)
    """
    return _hash(Path(daes.__file__).parent, (*ROOMS, *more))


@cache
def _hash(package: Path, places: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for place in places:
        top = package / place
        for path in sorted(top.rglob("*.py")) if top.is_dir() else [top]:
            source = path.read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{path.relative_to(package).as_posix()} {len(source)}\n".encode() + source)
    return digest.hexdigest()[:16]

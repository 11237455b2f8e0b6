"""Files that are there whole or as they were, whatever happens while they are written: a kill, a full disk, no power.

New content goes to a temporary file in the same folder, is made durable and takes its name at one instant; the folder
is made durable after that. A killed writer leaves its temporary file behind, under a name no other writer will use.
"""

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp", re.DOTALL)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` at the end of the block, and vanishes if anything goes wrong in it.

    Its permissions are those of any new file. An error names `path`, never the temporary file; one of the folder's
    `fsync`, after the instant of the replacement, leaves the new content.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers"
    >>> with replacing(path) as file:
    ...     _ = file.write(b"1 2 ")
    ...     _ = file.write(b"3")
    >>> path.read_bytes()
    b'1 2 3'
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with _naming(path, temporary):
        file = temporary.open("xb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with _naming(path, temporary):
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file, so that `path` holds all of the content, durably, or what it held before."""
    with replacing(path) as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """`write_bytes` of a text in UTF-8, its line ends as they are."""
    write_bytes(path, content.encode())


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable: a rename is not, before its folder is written out."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows, which opens no folders
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the answers of file systems that sync files alone
            raise
    finally:
        os.close(folder)


def clear_leftovers(folder: Path, ours: Callable[[str], object]) -> None:
    """Remove the temporary files that killed writers left in a folder, while nobody writes the files in question.

    Args:
        folder: where to look; it need not exist.
        ours: whether temporary files of the file with this name are to go.
    """
    for entry in folder.iterdir() if folder.is_dir() else ():
        found = _TEMPORARY.fullmatch(entry.name)
        if found and ours(found[1]):
            entry.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path, temporary: Path) -> Iterator[None]:
    """Errors that name the file which was asked for."""
    try:
        yield
    except OSError as error:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to") from None
        if error.filename == str(temporary):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise

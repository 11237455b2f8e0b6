"""Durable writes: a file has either its new or its old content, even after a kill, a full disk or a loss of power.

New content is written to a temporary file in the same folder, made durable and renamed atomically; then the folder is
made durable. A killed writer leaves its temporary file behind, under a name that no other writer uses. Implemented
here because the libraries for atomic writes do not sync the folder.
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
def replacing(path: str | os.PathLike[str], *, follow_symlinks: bool = False) -> Iterator[BinaryIO]:
    """A new file that replaces `path` at the end of the block, or is removed if the block raises.

    A symbolic link is replaced itself, unless `follow_symlinks`: then what it points to is, and the link stays.
    Its permissions are those of any new file. An error names `path`, never the temporary file, even where the operating
    system names none (a full disk). If the `fsync` of the folder fails, after the replacement, the new content stays.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers"
    >>> with replacing(path) as file:
    ...     _ = file.write(b"1 2 ")
    ...     _ = file.write(b"3")
    >>> path.read_bytes()
    b'1 2 3'
    """
    path = Path(os.path.realpath(path)) if follow_symlinks and Path(path).is_symlink() else Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with _naming(path, temporary):
        file = temporary.open("xb")
    try:
        with _naming(path, temporary):
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def write_bytes(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write a file durably: `path` has either the new or the old content."""
    with replacing(path) as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """`write_bytes` of a text in UTF-8, line ends unchanged."""
    write_bytes(path, content.encode())


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable: a rename is not durable before its folder is synced."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of file systems that sync only files
            raise
    finally:
        os.close(folder)


def remove_temporary_files(folder: Path, remove: Callable[[str], object]) -> None:
    """Remove temporary files that killed writers left in a folder; no other process may be writing these files.

    Args:
        folder: the folder, which need not exist.
        remove: whether to remove the temporary files of the file with a name.
    """
    for entry in folder.iterdir() if folder.is_dir() else ():
        target = target_of(entry.name)
        if target is not None and remove(target):
            entry.unlink(missing_ok=True)


def target_of(name: str) -> str | None:
    """The final name of a temporary file; None if `name` is not that of one.

    >>> target_of(".numbers.0123abcd.tmp"), target_of("numbers")
    ('numbers', None)
    """
    found = _TEMPORARY.fullmatch(name)
    return found[1] if found else None


@contextmanager
def _naming(path: Path, temporary: Path) -> Iterator[None]:
    """Errors that name the requested file."""
    try:
        yield
    except OSError as error:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to") from None
        # Writing to an open file gives errors without a name.
        if error.errno is not None and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise

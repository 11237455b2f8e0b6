"""One writer at a time, for as long as it lives."""

import os
import socket
import weakref
from contextlib import suppress
from pathlib import Path


class LockHeldError(RuntimeError):
    """Another writer holds the lock."""


class WriterLock:
    """An advisory lock of the kernel on a file, which says who holds it. POSIX only.

    The kernel drops the lock when its process ends, killed or not, so that a file left behind by a dead process holds
    nobody up. Forked children do not inherit it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lock"
    >>> mine, yours = WriterLock(path), WriterLock(path)
    >>> mine.acquire()
    >>> yours.acquire()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    LockHeldError: process 4711 on host is writing there, one writer at a time
    >>> mine.release()
    >>> yours.acquire()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def acquire(self) -> None:
        """Take the lock, or raise `LockHeldError` that names the holder."""
        import fcntl

        if self.held:
            return
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(file)
            raise LockHeldError(f"{holder} is writing there, one writer at a time") from None
        except BaseException:
            os.close(file)
            raise
        with suppress(OSError):  # who holds it is for people to read; a full disk must not stop us here
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._file = file
        _held.add(self)

    def release(self) -> None:
        """Let another writer in. The file stays, for removing it could let in two."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.release()


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _release_in_child() -> None:
    for lock in list(_held):
        lock.release()


# A fork shares the open file, and the lock would live on in the child after the parent's end.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)

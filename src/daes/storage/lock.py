"""A lock for one writer at a time, which ends with its process."""

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from daes.extras import require


class LockHeldError(RuntimeError):
    """Another writer holds the lock."""


class WriterLock:
    """A `filelock.FileLock` whose error names the holder.

    The operating system releases the lock when the process ends, killed or not, so a lock file left behind by a dead
    process blocks nobody. Forked children do not inherit it. The name of the holder is in a separate file,
    `PATH.holder`, because a locked file cannot be read on Windows.

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
        self._holder = path.with_name(f"{path.name}.holder")
        self._lock: Any = None

    @property
    def is_locked(self) -> bool:
        return self._lock is not None and bool(self._lock.is_locked)

    def acquire(self) -> None:
        """Acquire the lock, or raise a `LockHeldError` that names the holder."""
        if self.is_locked:
            return
        filelock = require("filelock")
        if self._lock is None:
            self._lock = filelock.FileLock(self.path, thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except filelock.Timeout:
            raise LockHeldError(f"{self._read_holder()} is writing there, one writer at a time") from None
        with suppress(OSError):  # the name is only for messages; a full disk must not stop the run
            self._holder.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")

    def release(self) -> None:
        """Release the lock. The lock file stays, because removing it could admit two writers."""
        if self.is_locked:
            with suppress(OSError):
                self._holder.unlink()
            self._lock.release()

    def _read_holder(self) -> str:
        try:
            return self._holder.read_text(encoding="utf-8", errors="replace")[:200].strip() or "another process"
        except OSError:
            return "another process"

"""Checkpoints of a run: atomic, checksummed, the last few kept, written in the background.

A store is a folder with one file per step, `step-000000001200.safetensors` (see `daes.storage.state_file`), and a lock.
"""

import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from daes.distribution.base import check_positive
from daes.storage.durable import remove_temporary_files, sync_directory
from daes.storage.lock import LockHeldError, WriterLock
from daes.storage.nested_state import EncodedState, StateError, encode_state
from daes.storage.state_file import read_state, write_encoded

_log = logging.getLogger(__name__)
_NAME = re.compile(r"step-(\d{12,18})\.safetensors")


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, or there are checkpoints and none is valid."""


class CheckpointWarning(UserWarning):
    """A checkpoint is not valid, and another one is used."""


class Checkpoint(NamedTuple):
    """A saved state."""

    step: int
    state: Any
    path: Path

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A context in which an error about an unexpected state becomes a `CheckpointError` that names the file."""
        try:
            yield
        except CheckpointError:
            raise
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
            raise CheckpointError(f"{self.path} is not a checkpoint of such a run: {reason}") from error


class CheckpointStore:
    """The last `keep` checkpoints of a run, in a folder of their own.

    - **Atomic.** If the process is killed, the store has only complete checkpoints: a file is written under another
      name, made durable and then renamed. Older ones are removed after the new one is durable.
    - **Checked.** A damaged file is refused with a reason (a `CheckpointWarning`) and the previous one is used.
    - **In the background.** `save_async` takes a copy of the state and writes it in a thread, one at a time. An error
      of that thread is raised by the next call of `save`, `save_async`, `wait` or `close`.
    - **One writer.** The first save locks the folder until `close` or the end of the process, even if it is killed; a
      second writer gets an error. Reading needs no lock.

    A state is nested dicts, lists and tuples with tensors, arrays and plain values: see `daes.storage.nested_state`.

    Args:
        directory: the folder.
        keep: number of checkpoints to keep.
        map_above: `load` maps larger arrays (in bytes) from their file instead of reading them.

    >>> import tempfile
    >>> with CheckpointStore(tempfile.mkdtemp(), keep=2) as store:
    ...     for step in (100, 200, 300):
    ...         _ = store.save(step, {"weight": np.full(2, step / 100), "position": {"row": step}})
    ...     store.steps(), store.load().state
    ([200, 300], {'weight': array([3., 3.]), 'position': {'row': 300}})
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 3, *, map_above: int | None = None) -> None:
        check_positive(keep=keep)
        self.directory = Path(directory)
        self.keep = keep
        self.map_above = map_above
        self.added = 0
        """How many checkpoints of further steps were written."""
        self._lock = WriterLock(self.directory / "lock")
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def save(self, step: int, state: Any) -> Path:
        """Write the state of a step and return its file when it is durable.

        A checkpoint of the same step is replaced. A step before the newest is an error, because `load` would still
        return the newest.
        """
        self.wait()
        step = self._prepare(step)
        self._write(step, encode_state({"step": step, "state": state}))
        return self.path(step)

    def save_async(self, step: int, state: Any, *, copy: bool = True) -> None:
        """Copy the state now and write it in the background, after the previous one has been written.

        Without a `copy`, the state must not change before `wait`.
        """
        self.wait()
        step = self._prepare(step)
        encoded = encode_state({"step": step, "state": state}, copy=copy)
        # Not a daemon, so a process that ends normally finishes its last checkpoint.
        self._thread = threading.Thread(target=self._write_in_background, args=(step, encoded), name="daes-checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until no checkpoint is being written, and raise the error of the last one, if any."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def steps(self) -> list[int]:
        """The steps that have a file, in order. Whether the file is valid is checked by `load`."""
        if not self.directory.is_dir():
            return []
        found = (_NAME.fullmatch(entry.name) for entry in self.directory.iterdir())
        return sorted(int(match[1]) for match in found if match and match[0] == _file_name(int(match[1])))

    def load(self, step: int | None = None) -> Checkpoint | None:
        """The newest valid checkpoint, or that of one step; None if there is no checkpoint at all.

        Raises `CheckpointError` if there are checkpoints and none is valid, so that a run does not silently start anew.
        """
        if step is not None:
            if step not in self.steps():
                raise CheckpointError(f"{self.directory} has no checkpoint of step {step}, only of {self.steps()}")
            try:
                return self._read(step)
            except (StateError, OSError) as error:
                raise CheckpointError(f"{self.path(step)} is refused: {error}") from error
        while True:
            refused: list[str] = []
            vanished = False
            for candidate in reversed(self.steps()):
                try:
                    return self._read(candidate)
                except FileNotFoundError:
                    vanished = True
                except (StateError, OSError) as error:
                    path = self.path(candidate)
                    refused.append(f"{path.name}: {error}")
                    warnings.warn(f"{path} is refused: {error}", CheckpointWarning, stacklevel=2)
            # A writer removes old checkpoints once it has a newer one: list them again.
            if not vanished:
                break
        if refused:
            raise CheckpointError(f"{self.directory} has no valid checkpoint: {'; '.join(refused)}")
        return None

    def close(self) -> None:
        """Finish writing and release the lock."""
        try:
            self.wait()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            # The current error is more informative; that of the background thread was logged when it occurred.
            with suppress(Exception):
                self.close()

    def path(self, step: int) -> Path:
        """The file of a step."""
        return self.directory / _file_name(step)

    def _prepare(self, step: int) -> int:
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step < 10**18:
            raise ValueError(f"step must be an integer from 0 to 10^18 - 1, got {step!r}")
        self._open()
        for later in reversed(self.steps()):
            if later > step:
                self._rename_refused(later, step)
        return int(step)

    def _open(self) -> None:
        if self._lock.is_locked:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            sync_directory(self.directory.parent)
            self._lock.acquire()
        except (LockHeldError, OSError) as error:
            raise CheckpointError(f"{self.directory} cannot be used for checkpoints: {error}") from error
        # With the lock held there is no other writer, so these were left by one that was killed.
        remove_temporary_files(self.directory, _NAME.fullmatch)

    def _rename_refused(self, later: int, step: int) -> None:
        """Rename a later checkpoint that `load` refuses, since another release may be able to read it."""
        path = self.path(later)
        try:
            self._read(later)
        except StateError as error:
            renamed = path.with_name(f"{path.name}.refused")
            warnings.warn(f"{path} is set aside as {renamed.name}: {error}", CheckpointWarning, stacklevel=4)
            path.replace(renamed)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        else:
            raise CheckpointError(
                f"step must not go back, got {step} and {self.directory} already has step {later}: "
                f"remove {path.name} to continue from an earlier one"
            )

    def _write(self, step: int, encoded: EncodedState) -> None:
        before = self.steps()
        try:
            write_encoded(self.path(step), encoded)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {self.path(step)}: {error.strerror or error}; "
                + (f"the checkpoints of steps {before} are unchanged" if before else "there is no earlier one")
            ) from error
        self.added += step not in before
        for old in self.steps()[: -self.keep]:
            try:
                self.path(old).unlink(missing_ok=True)
            except OSError as error:
                _log.warning("%s could not be removed: %s", self.path(old), error)

    def _write_in_background(self, step: int, encoded: EncodedState) -> None:
        try:
            self._write(step, encoded)
        except Exception as error:
            _log.error("%s", error)
            self._error = error

    def _read(self, step: int) -> Checkpoint:
        path = self.path(step)
        match read_state(path, follow_symlinks=False, map_above=self.map_above):
            case {"step": int(saved), "state": state} if saved == step:
                return Checkpoint(step, state, path)
        raise StateError("it is not a checkpoint of the step in its name")


def _file_name(step: int) -> str:
    return f"step-{step:012d}.safetensors"

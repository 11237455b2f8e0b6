"""Arrays on disk that do not fit in memory, which checkpoints refer to."""

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from daes.storage.checkpoint import CheckpointStore
from daes.storage.durable import remove_temporary_files
from daes.storage.state_file import read_state, write_state

_ENDING = ".segment"


class Segments:
    """Files of arrays in a folder, each written once under a unique name.

    Checkpoints may still refer to a file that was dropped, so it is removed once they have been replaced by later ones.

    Args:
        folder: the folder, created when the first file is written.
        store: the checkpoints.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> segments = Segments(folder / "pending", CheckpointStore(folder / "checkpoints"))
    >>> name = segments.write({"rows": 3})
    >>> segments.read(name)
    {'rows': 3}
    """

    def __init__(self, folder: str | Path, store: CheckpointStore) -> None:
        self.folder = Path(folder)
        self.store = store
        self._dropped: list[tuple[int, str]] = []

    def write(self, arrays: Mapping[str, Any]) -> str:
        """Write a file durably and return its name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = secrets.token_hex(8) + _ENDING
        write_state(self.folder / name, dict(arrays))
        return name

    def read(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = read_state(self.folder / name)
        return found

    def drop(self, name: str) -> None:
        """Mark a file as needed only by checkpoints of now or before, one of which may still be being written."""
        self._dropped.append((self.store.added, name))

    def clean(self) -> None:
        """Remove files that no checkpoint refers to."""
        while self._dropped and self.store.added - self._dropped[0][0] > self.store.keep:
            (self.folder / self._dropped.pop(0)[1]).unlink(missing_ok=True)

    def recover(self, names: Iterable[str]) -> None:
        """Continue from a checkpoint that refers to these files; the others are dropped."""
        needed = set(names)
        remove_temporary_files(self.folder, lambda name: name.endswith(_ENDING))
        for path in sorted(self.folder.glob(f"*{_ENDING}")):
            if path.name not in needed:
                self.drop(path.name)
